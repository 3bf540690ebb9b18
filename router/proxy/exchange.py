"""One connection to a worker: asyncio.Protocol on one side, httptools (llhttp) on the other.

It carries one exchange at a time. Limits on connecting, on the first byte and on silence are swept. The receiver hears
of a read's head, body and end in turn, so that what one read brought can be written together.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Final

import httptools

from router import errors
from router.contracts import Receiver as Receiver
from router.errors import AttemptError, BrokenAnswer
from router.proxy.answer_law import MOST_HEAD, framing
from router.proxy.dialing import dial
from router.proxy.headers import Headers, lowered
from router.proxy.pen import Pen

if TYPE_CHECKING:
    from router.proxy.upstream import Pool

UNUSED_SECONDS: Final = 60.0  # then an idle connection is closed: what drops it silently would be noticed late
STALE_SECONDS: Final = 0.25  # a round trip, generously: within it a kept connection's end is no answer to the request


class Connection:
    """An asyncio protocol by its methods: below a class that is not compiled it would be slow."""

    __slots__ = ("_announced", "_done", "_eof_ends", "_head", "_head_bytes", "_headers", "_keep", "_length", "_parser",
                 "_pen", "_pieces", "_request", "_seen", "_status", "_task", "_transport", "deadline", "paused", "peer",
                 "pool", "receiver", "sent_at", "used")  # fmt: skip

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.used = self.paused = False
        self.deadline = inf
        self.receiver: Receiver | None = None
        self.peer: str | None = None  # the address behind the worker's name
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._request: tuple[bytes, bytes] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        pool.opened(self)

    @property
    def busy(self) -> bool:
        return self.receiver is not None

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def send(self, head: bytes, body: bytes, receiver: Receiver, now: float) -> None:
        """Begin an exchange; on a connection not open yet the request waits for it."""
        self.receiver = receiver
        self._headers: Headers = []
        self._length: int | None = None
        self._status = self._head_bytes = 0
        self._seen = self._announced = self._done = self._keep = False
        self._eof_ends = True
        if self._transport is None:
            self._request = head, body
            self.deadline = now + self.pool.limits.connect
            self._task = self.pool.loop.create_task(dial(self.pool, self))
        else:
            self._write(head, body, now)

    def cancel(self) -> None:
        """The receiver is gone: the worker is told by closing, in whatever phase."""
        self.receiver = None
        self._close()

    def pause(self) -> None:
        """The client reads slowly: the worker's silence is not its own."""
        self.paused = self.receiver is not None
        if self.paused and self._transport is not None:
            self._transport.pause_reading()
            self.deadline = inf

    def resume(self) -> None:
        at, was, self.paused = self._transport, self.paused, False
        if was and at is not None and not at.is_closing():
            at.resume_reading()
            self.deadline = self.pool.sweep.clock() + self.pool.limits.idle

    def overdue(self, now: float) -> None:
        limits = self.pool.limits
        if self.receiver is None:
            self._close()  # idle for long enough
        elif self._transport is None:
            self._fail(errors.ConnectTimeout(f"no connection within {limits.connect:g} s"))
        elif self._seen:
            self._fail(errors.IdleTimeout(f"nothing more for {limits.idle:g} s"))
        else:
            self._fail(errors.FirstByteTimeout(f"no answer within {limits.first_byte:g} s"))

    def not_connected(self, failure: AttemptError) -> None:
        self._task = None
        self._fail(failure)

    def _write(self, head: bytes, body: bytes, now: float) -> None:
        self.sent_at = now
        self.deadline = now + self.pool.limits.first_byte
        self._pen.begin()
        self._pen.write([head, body])

    # asyncio's side

    def eof_received(self) -> None:
        """The worker sends no more: the transport closes."""

    def pause_writing(self) -> None:
        """A request's body waits in the transport."""

    def resume_writing(self) -> None:
        """It has gone out."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._pen = Pen(self._transport)  # type: ignore[arg-type]
        request, self._request = self._request, None
        if self.receiver is None or request is None:
            self._close()
            return
        self._write(*request, self.pool.sweep.clock())
        if self.paused:
            self.pause()  # it was while this connected

    def data_received(self, data: bytes) -> None:
        receiver = self.receiver
        if receiver is None:  # an idle connection has nothing to say
            self._close()
            return
        self._seen = True
        self.pool.reads += 1
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._keep = False
            if not self._done:
                self._tell(receiver)
                self._fail(BrokenAnswer("what it sent was no HTTP"))
                return
        if not self._announced:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD:
                self._fail(BrokenAnswer("its head has no end"))
                return
        self._tell(receiver)

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.drop(self)
        self.pool.closed(self)
        receiver = self.receiver
        if receiver is None:
            return
        if self._announced and self._eof_ends and exc is None:
            self._done, self._keep = True, False
            self._tell(receiver)
        elif self.used and not self._seen and self.pool.sweep.clock() < self.sent_at + STALE_SECONDS:
            self._fail(errors.StaleConnection("closed while idle"))
        else:
            self._fail(BrokenAnswer("the connection broke"))

    # httptools' side

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._announced:  # trailers stay here: they are no headers
            self._headers.append((lowered(name), value))

    def on_headers_complete(self) -> None:
        headers, self._headers = self._headers, []
        if self._done:
            self._keep = False  # more than was asked for: not to be trusted again
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200:  # an interim answer; the real one follows
            return
        self._length, self._eof_ends = framing(status, headers)
        self._status = status
        self._head = headers
        self._announced = True

    def on_body(self, body: bytes) -> None:
        if not self._announced:
            raise BrokenAnswer("an interim answer has no body")
        if not self._done:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._announced and not self._done:
            self._done = True
            self._keep = self._parser.should_keep_alive()  # true only in here: llhttp clears its flags after it

    # the receiver's side

    def _tell(self, receiver: Receiver) -> None:
        """Tell what one read brought. The receiver may cancel at every step."""
        if self._status:
            status, self._status = self._status, 0
            receiver.on_head(status, self._head, self._length)
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            if self.receiver is None:
                return
            receiver.on_body(pieces)
        if self.receiver is None:
            return
        if self._done:
            self.receiver = None
            self._rest()
            receiver.on_end()
        elif self._announced:
            if not self.paused:
                self.deadline = self.pool.sweep.clock() + self.pool.limits.idle
            receiver.on_read()

    def _fail(self, failure: AttemptError) -> None:
        receiver, self.receiver = self.receiver, None
        self._close()
        if receiver is not None:
            receiver.on_failure(failure)

    def _rest(self) -> None:
        """Over: back to the pool, or closed. What is left of a request answered early must not go out there."""
        self.used = True
        at = self._transport
        if self._keep and at is not None and not at.is_closing() and not at.get_write_buffer_size():
            self.resume()
            self.deadline = self.pool.sweep.clock() + UNUSED_SECONDS
            self.pool.keep(self)
        else:
            self._close()

    def _close(self) -> None:
        self.pool.drop(self)
        self._request = None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        if self._transport is None:
            self.pool.closed(self)
        else:
            self._transport.abort()
