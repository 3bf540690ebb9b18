"""What a client may take: time and bytes, and how it is sent away.

Part of a lane (`lane.py`), which reads its requests. uvicorn's protocol object stands beside it and keeps the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from router.contracts import Dialect, Teller
from router.errors import HeadersTooLarge, InvalidRequest, Refusal, RequestTimeout
from router.proxy.fast_sink import FastSink
from router.proxy.headers import Headers, request_id
from router.proxy.pen import Pen
from router.proxy.sweep import PATIENCE, SLOWEST, ClientLimits, Sweep

LINGER_SECONDS: Final = 2.0  # a client still sending what was refused gets that long to read why
FRAMING: Final = 8  # bytes of framing for one of the body: chunks of a single byte pass, endless extensions do not


class Terms:
    """What all lanes of a gateway go by. `closing`: every answer is its connection's last."""

    def __init__(
        self, teller: Teller, limits: ClientLimits, sweep: Sweep, emit_refused: Callable[[Refusal, str, str], None]
    ) -> None:
        self.teller = teller
        self.paths = teller.paths
        self.limits = limits
        self.sweep = sweep
        self.emit_refused = emit_refused
        self.closing = False


class Guard:
    """One client connection, its limits and its end.

    shell: uvicorn's protocol object, until the connection is lost
    sink: of the latest request that was answered here, `running`: of the app's, while others may wait behind it
    """

    def __init__(self, shell: Any, terms: Terms) -> None:
        self.shell: Any = shell
        self.terms = terms
        self.transport: asyncio.Transport
        self.pen: Pen
        self.keep_alive_seconds: float = shell.timeout_keep_alive
        self.url = b""
        self.headers: Headers = []
        self.sink: FastSink | None = None
        self.mine: FastSink | None = None  # of the request that is read; None while the app has it
        self.running: Any = None
        self.write_paused = False
        self.in_message = False
        self.in_head = False
        self.head_bytes = 0
        self.read_bytes = 0
        self.unread = 0
        self.raw_bytes = 0  # these three, and since when: of a request that takes more than one read
        self.body_bytes = 0
        self.quiet_bytes = 0
        self.since = 0.0
        self.deadline: float = inf
        self._peer: str | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.pen = Pen(transport)
        self.deadline = self.terms.sweep.clock() + self.terms.limits.read_seconds
        self.terms.sweep.watch(self)

    def peer(self) -> str:
        """The address that is connected, or that a trusted PROXY header named."""
        peer = self._peer
        if peer is None:
            client = self.shell.client
            peer = self._peer = str(client[0]) if client else ""
        return peer

    # While it sends.

    def more_to_come(self) -> None:
        """A read is over and the request is not."""
        limits, now = self.terms.limits, self.terms.sweep.clock()
        if self.in_head:
            begun = not self.head_bytes  # in this read, behind other requests maybe
            self.head_bytes += self.read_bytes
            if self.head_bytes > limits.header_bytes:
                size = self.head_size() if begun else self.head_bytes
                if size > limits.header_bytes:
                    self.send_away(self.headers_too_large())
                    return
                self.head_bytes = size
            if not begun:
                return  # the head as a whole has the time, whatever trickles in
        elif self.mine is not None and self.mine.response_complete:
            return  # it lingers
        elif not self.raw_bytes:
            self.since, self.raw_bytes, self.body_bytes, self.quiet_bytes = now, 1, 0, 0
        elif not self._is_fair(now):
            return
        self.deadline = now + limits.read_seconds

    def _is_fair(self, now: float) -> bool:
        """A body goes on: not too slowly, nor with more framing than body."""
        limits = self.terms.limits
        self.raw_bytes += self.read_bytes
        self.quiet_bytes += self.read_bytes
        most = limits.header_bytes
        if self.quiet_bytes > most or self.raw_bytes - self.body_bytes > most + FRAMING * self.body_bytes:
            self.send_away(InvalidRequest("The body has more framing than content."))
            return False
        if now - self.since > limits.read_seconds * PATIENCE + self.raw_bytes / SLOWEST:
            self.send_away(RequestTimeout("The body comes too slowly: a kilobyte a second is the least."))
            return False
        return True

    def headers_too_large(self) -> Refusal:
        return HeadersTooLarge(f"The headers are larger than {self.terms.limits.header_bytes} bytes.")

    def head_size(self) -> int:
        """Of what has come of it."""
        size = len(self.url) + 1
        for name, value in self.headers:
            size += len(name) + len(value) + 4
        return size

    # When its time is over.

    def overdue(self, now: float) -> None:
        self.deadline = now + LINGER_SECONDS  # if closing takes longer, what is left goes unread
        sink = self.sink
        unread = self.transport.get_write_buffer_size()
        if self.write_paused and unread < self.unread and not self.transport.is_closing():
            self.unread = unread  # it reads, if slowly
            self.deadline = now + self.terms.limits.write_seconds
        elif self.write_paused or self.transport.is_closing():
            self.transport.abort()  # it does not read what it asked for
        elif self.in_head:
            self.send_away(RequestTimeout("The headers did not come within timeouts.client_read_seconds."))
        elif sink is not None and not sink.response_complete and self.in_message:
            sink.late()
        else:
            self.transport.close()  # idle for long enough, or done lingering

    def linger(self) -> None:
        """The answer is out and the client still sends: read on for a moment, so that no reset destroys the answer."""
        self.deadline = self.terms.sweep.clock() + LINGER_SECONDS

    def pause_writing(self) -> None:
        self.write_paused = True
        self.unread = self.transport.get_write_buffer_size()
        self.deadline = self.terms.sweep.clock() + self.terms.limits.write_seconds
        if self.sink is not None:
            self.sink.pause()

    def resume_writing(self) -> None:
        self.write_paused = False
        self.deadline = self.terms.sweep.clock() + self.keep_alive_seconds if self.is_free() else inf
        if self.sink is not None:
            self.sink.resume()

    # How it is sent away.

    def send_away(self, refusal: Refusal) -> None:
        """Refuse and close."""
        sink = self.mine
        if self.transport.is_closing():
            return
        if sink is not None and not sink.response_complete and not sink.whole:
            sink.refuse(refusal)  # it is this request that goes wrong, and its answer has not begun
            self.transport.close()
            return
        if sink is not None and sink.response_complete and not sink.whole:
            self.transport.close()  # it was refused before, and what follows is not read
            return
        own_id = request_id(None)
        self.terms.emit_refused(refusal, own_id, self.peer())
        if not self.is_free():
            self.stop()
            self.transport.abort()  # an answer may have begun, and this one must not stand in it
            return
        content_type, body = self._dialect().refusal(refusal)
        self.transport.write(
            STATUS_LINE[refusal.status]
            + b"content-type: %s\r\nx-request-id: %s\r\n" % (content_type, own_id.encode())
            + b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
        )  # nothing of the lane's follows it
        self.transport.close()

    def _dialect(self) -> Dialect:
        paths = self.terms.paths
        place = paths.get(self.url.partition(b"?")[0]) if self.in_message else None
        if place is not None:
            return place.dialect
        return next(place.dialect for place in paths.values() if place.dialect.name == "openai")

    def lost(self) -> None:
        """The connection is gone. Nothing refers back to it any more, so that all of it is freed at once."""
        self.terms.sweep.forget(self)
        self.stop()
        self.mine = None

    def stop(self) -> None:
        """The client has gone, or is sent away: whatever runs for it ends."""
        sink, self.sink = self.sink, None
        if sink is not None:
            sink.gone()
        running, self.running = self.running, None
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()

    def is_free(self) -> bool:
        """No answer is under way on this connection; a pipelined request waits its turn in uvicorn's own queue."""
        cycle = self.shell.cycle
        return cycle is None or bool(cycle.response_complete)
