"""The plain answer: right framing on one transport, and its end told exactly once."""

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence

from backends.http import LAST_CHUNK, Headers, Request, chunk, head_bytes

LINGER_ZERO = struct.pack("ii", 1, 0)
"""SO_LINGER on, zero seconds: closing throws away what is unsent and sends a reset."""


class Reply:
    """Implements `Answer`. An HTTP/1.0 client gets no chunks: there the connection's end is the body's end."""

    def __init__(self, transport: asyncio.Transport, request: Request, after: Callable[[bool], None]) -> None:
        self._transport = transport
        self._bodiless = request.method == "HEAD"
        self._modern = self._chunked = request.version == "1.1"
        self._keep = request.keep_alive
        self._watchers: list[Callable[[bool], None]] = [after]
        self._over = False

    def __repr__(self) -> str:
        return f"<Reply {'over' if self._over else 'open'}, {len(self._watchers)} watching>"

    def when_over(self, callback: Callable[[bool], None]) -> None:
        self._watchers.append(callback)

    def whole(self, status: int, headers: Headers, body: bytes) -> None:
        if self._over:
            return
        framing = ("content-length", str(len(body)))
        head = head_bytes(status, [*headers, framing, *self._connection()])
        self._transport.write(head if self._bodiless else head + body)
        self._finish()

    def head(self, status: int, headers: Headers, length: int | None = None) -> None:
        if self._over:
            return
        if length is not None:
            self._chunked = False
            headers = [*headers, ("content-length", str(length))]
        elif self._chunked:
            headers = [*headers, ("transfer-encoding", "chunked")]
        else:
            self._keep = False
        self._transport.write(head_bytes(status, [*headers, *self._connection()]))

    def send(self, events: Sequence[bytes]) -> None:
        if self._over or self._bodiless or not events:
            return
        self._transport.write(b"".join(map(chunk, events) if self._chunked else events))

    def end(self) -> None:
        if self._over:
            return
        if self._chunked and not self._bodiless:
            self._transport.write(LAST_CHUNK)
        self._finish()

    def raw(self, data: bytes) -> None:
        if not self._over:
            self._transport.write(data)

    def cut(self) -> None:
        if not self._over:
            self._transport.close()
            self.gone()

    def reset(self) -> None:
        if not self._over:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
            self._transport.abort()
            self.gone()

    def gone(self) -> None:
        """The client went, or the answer was cut: there is nobody to answer any more."""
        self._tell(complete=False)

    def _connection(self) -> Headers:
        if self._keep:
            return [] if self._modern else [("connection", "keep-alive")]
        return [("connection", "close")]

    def _finish(self) -> None:
        if not self._keep:
            self._transport.close()
        self._tell(complete=True)

    def _tell(self, *, complete: bool) -> None:
        if self._over:
            return
        self._over = True
        watchers, self._watchers = self._watchers, []
        for watcher in reversed(watchers):
            watcher(complete)
