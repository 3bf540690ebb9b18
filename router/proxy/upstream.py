"""Keep-alive connections to workers: asyncio.Protocol on one side, httptools (llhttp) on the other.

One `Pool` a worker; a connection carries one exchange at a time and goes back to its pool when the answer ended cleanly
and both sides may go on. There is no limit on connections: admission is the mind's business. Limits on connecting, on
the first byte and on silence are swept (`sweep.py`); there is none on the whole.

The receiver is called at most once a read, so that a head and the bytes that came with it can be written together.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from base64 import b64encode
from collections import deque
from math import inf
from typing import Protocol

import httptools
import msgspec

from router.errors import (
    AttemptError,
    BrokenAnswer,
    ConnectTimeout,
    FirstByteTimeout,
    IdleTimeout,
    LocalTrouble,
    StaleConnection,
    Unreachable,
)
from router.proxy.headers import Headers
from router.proxy.sweep import Sweep
from router.types import Worker

ONE_WRITE = 65_536  # a body below this is copied behind its head: one packet, one system call
MOST_IDLE = 256  # connections kept for reuse a worker
OWN_TROUBLE = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))


class Limits(msgspec.Struct, frozen=True):
    """Seconds."""

    connect: float = 2.0
    first_byte: float = 600.0
    idle: float = 300.0


class Receiver(Protocol):
    """Who awaits the answer. After `on_end` or `on_failure` the connection calls no more."""

    def on_connected(self) -> None: ...
    def on_head(self, status: int, headers: Headers, length: int | None) -> None: ...
    def on_body(self, pieces: list[bytes]) -> None: ...
    def on_read(self) -> None:
        """All that one read brought has been told."""
    def on_end(self) -> None: ...
    def on_failure(self, failure: AttemptError) -> None: ...


class Connection(asyncio.Protocol):
    __slots__ = ("_announced", "_done", "_eof_ends", "_headers", "_keep", "_length", "_parser", "_pieces",
                 "_receiver", "_request", "_seen", "_status", "_task", "_transport", "deadline", "pool", "used")  # fmt: skip

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.used = False
        self.deadline = inf
        self._receiver: Receiver | None = None
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._headers: Headers = []
        self._request: tuple[bytes, bytes] | None = None
        self._status = 0
        self._length: int | None = None
        self._seen = self._announced = self._done = self._keep = self._eof_ends = False

    def send(self, head: bytes, body: bytes, receiver: Receiver) -> None:
        """Begin an exchange; on a connection not open yet the request waits for it."""
        self._receiver = receiver
        self._headers = []
        self._length = None
        self._seen = self._announced = self._done = self._keep = False
        self._eof_ends = True
        if self._transport is None:
            self._request = head, body
            self.deadline = self.pool.sweep.clock() + self.pool.limits.connect
            self._task = self.pool.loop.create_task(self._connect())
        else:
            self._write(head, body)
        self.pool.busy[self] = None
        self.pool.sweep.watch(self)

    def cancel(self) -> None:
        """The receiver is gone: the worker is told by closing, in whatever phase."""
        self._receiver = None
        self._close()

    def pause(self) -> None:
        """The client reads slowly; while that is so, the worker's silence is not its own."""
        if self._transport is not None and not self._done:
            self._transport.pause_reading()
            self.deadline = inf

    def resume(self) -> None:
        if self._transport is not None and not self._done and not self._transport.is_closing():
            self._transport.resume_reading()
            self.deadline = self.pool.sweep.clock() + self.pool.limits.idle

    def overdue(self, now: float) -> None:
        if self._transport is None:
            self._fail(ConnectTimeout(f"no connection within {self.pool.limits.connect:g} s"))
        elif self._seen:
            self._fail(IdleTimeout(f"nothing more for {self.pool.limits.idle:g} s"))
        else:
            self._fail(FirstByteTimeout(f"no answer within {self.pool.limits.first_byte:g} s"))

    async def _connect(self) -> None:
        address = self.pool.address
        tls = {"ssl": self.pool.tls, "server_hostname": address.host} if self.pool.tls else {}
        try:
            await self.pool.loop.create_connection(lambda: self, address.host, address.port, **tls)  # type: ignore[arg-type]
        except OSError as wrong:
            kind = LocalTrouble if wrong.errno in OWN_TROUBLE else Unreachable
            self._fail(kind(type(wrong).__name__))

    def _write(self, head: bytes, body: bytes) -> None:
        assert self._transport is not None
        self.deadline = self.pool.sweep.clock() + self.pool.limits.first_byte
        if len(body) < ONE_WRITE:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if self._receiver is None:
            self._close()
            return
        request, self._request = self._request, None
        self._receiver.on_connected()
        if request is not None and self._receiver is not None:
            self._write(*request)

    def data_received(self, data: bytes) -> None:
        if self._receiver is None:  # an idle connection has nothing to say
            self._close()
            return
        self._seen = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._done:
                self._tell()
                self._fail(BrokenAnswer("what it sent was no HTTP"))
                return
            self._keep = False
        self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        self._discard()
        if self._receiver is None:
            return
        if self._announced and self._eof_ends and exc is None:
            self._done, self._keep = True, False
            self._tell()
        elif self.used and not self._seen:
            self._fail(StaleConnection("closed while idle"))
        else:
            self._fail(BrokenAnswer("the connection broke"))

    # httptools' side

    def on_message_begin(self) -> None:
        if self._done:
            self._keep = False  # more than was asked for: not to be trusted again

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._done:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._done:
            return
        if status < 200:
            self._headers = []
            return
        self._status = status
        for name, value in self._headers:
            if name == b"content-length":
                self._length = int(value)
                self._eof_ends = False
            elif name == b"transfer-encoding":
                self._eof_ends = False
        if status in (204, 304):
            self._eof_ends = False
        self._announced = True

    def on_body(self, body: bytes) -> None:
        if not self._done:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._announced and not self._done:
            self._done = True
            self._keep = self._parser.should_keep_alive()  # true only in here: llhttp clears its flags after it

    # the receiver's side

    def _tell(self) -> None:
        receiver = self._receiver
        if receiver is None:
            return
        self.deadline = self.pool.sweep.clock() + self.pool.limits.idle
        if self._status and self._announced:
            status, self._status = self._status, 0
            receiver.on_head(status, self._headers, self._length)
        if self._pieces and self._receiver is not None:
            pieces, self._pieces = self._pieces, []
            receiver.on_body(pieces)
        if self._receiver is None:
            return
        if self._done:
            self._receiver = None
            self._rest()
            receiver.on_end()
        else:
            receiver.on_read()

    def _fail(self, failure: AttemptError) -> None:
        receiver, self._receiver = self._receiver, None
        self._close()
        if receiver is not None:
            receiver.on_failure(failure)

    def _rest(self) -> None:
        """The exchange is over: back to the pool, or closed."""
        self.pool.busy.pop(self, None)
        self.pool.sweep.forget(self)
        self.used = True
        if self._keep and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self.pool.keep(self)
        else:
            self._close()

    def _close(self) -> None:
        self._discard()
        self._request = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._transport is not None:
            self._transport.abort()

    def _discard(self) -> None:
        self.pool.busy.pop(self, None)
        self.pool.sweep.forget(self)
        self.pool.drop(self)


class Pool:
    """The connections to one incarnation of a worker."""

    def __init__(self, worker: Worker, sweep: Sweep, limits: Limits, tls: ssl.SSLContext | None = None) -> None:
        address = self.address = worker.address
        self.base_path = address.base_path.encode()
        credentials = _credentials(worker)
        self.has_credentials = bool(credentials)
        self.greeting = b" HTTP/1.1\r\nhost: %s\r\n%s" % (address.netloc.encode(), credentials)
        self.sweep = sweep
        self.limits = limits
        self.tls = tls if address.scheme == "https" else None
        self.loop = asyncio.get_running_loop()
        self.busy: dict[Connection, None] = {}
        self._idle: deque[Connection] = deque()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Pool {self.address.netloc}, {len(self.busy)} busy, {len(self._idle)} idle>"

    def send(self, head: bytes, body: bytes, receiver: Receiver, *, fresh: bool = False) -> Connection:
        """Send a request on an idle connection, the one used last, or on a new one."""
        connection = self._idle.pop() if self._idle and not fresh else Connection(self)
        connection.send(head, body, receiver)
        return connection

    def keep(self, connection: Connection) -> None:
        if self._closed or len(self._idle) >= MOST_IDLE:
            connection.cancel()
        else:
            self._idle.append(connection)

    def drop(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close what is idle now and the rest as it ends: streams on a removed worker finish."""
        self._closed = True
        for connection in list(self._idle):
            connection.cancel()


def _credentials(worker: Worker) -> bytes:
    """The worker's own `Authorization` line: its key, or what its URL carries."""
    if worker.api_key:
        return b"authorization: Bearer %s\r\n" % worker.api_key.encode()
    if worker.address.credentials:
        return b"authorization: Basic %s\r\n" % b64encode(worker.address.credentials.encode())
    return b""
