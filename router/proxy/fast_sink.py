"""The client's side of one request in the fast lane: an answer's framing, straight to the transport."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from router.contracts import Story
from router.errors import Refusal
from router.proxy.headers import Headers

if TYPE_CHECKING:
    from router.proxy.lane import Lane

NO_BODY: Final = frozenset((204, 304))


class FastSink:
    """The client's side of one request. Stands where uvicorn keeps its request's cycle, with what uvicorn touches.

    It lets go of its story at the end, so that both are freed at once: waiting for the garbage collector would cost
    more than the request.
    """

    __slots__ = ("_chunked", "_complete", "_eof_ends", "_lane", "_old", "_out", "_story", "disconnected", "keep_alive",
                 "peer", "response_complete")  # fmt: skip

    def __init__(self, lane: Lane, *, old: bool, keep_alive: bool) -> None:
        self._lane = lane
        self._old = old
        self._out: list[bytes] = []
        self._story: Story | None = None
        self.peer: str = lane.peer()
        self._chunked = self._eof_ends = self._complete = False
        self.keep_alive = keep_alive
        self.response_complete = self.disconnected = False

    @property
    def message_event(self) -> FastSink:
        """uvicorn sets it when the client has gone."""
        return self

    @property
    def paused(self) -> bool:
        return self._lane.write_paused

    def set(self) -> None:
        if self.disconnected:
            self.gone()

    def begin(self, story: Story, headers: Headers) -> None:
        self._story = story
        story.begin(headers)

    def feed(self, data: bytes) -> None:
        if self._story is not None:
            self._story.feed(data)

    def received(self) -> None:
        """The request is whole."""
        self._complete = True
        if self._story is not None:
            self._story.complete()
        else:
            self._lane.transport.close()  # it was refused on the way, and that was told

    @property
    def whole(self) -> bool:
        """The request has come."""
        return self._complete

    def refuse(self, refusal: Refusal) -> None:
        if self._story is not None:
            self._story.refuse(refusal)

    def late(self) -> None:
        if self._story is not None:
            self._story.late()

    def pause(self) -> None:
        if self._story is not None:
            self._story.pause()

    def resume(self) -> None:
        if self._story is not None:
            self._story.resume()

    def gone(self) -> None:
        story, self._story = self._story, None
        self.response_complete = True
        if story is not None:
            story.cancel()

    def head(self, status: int, headers: Headers, length: int | None) -> None:
        if self.response_complete:
            return
        out = self._out
        out.append(STATUS_LINE[status] if status in STATUS_LINE else b"HTTP/1.1 %d \r\n" % status)
        for name, value in headers:
            out += (name, b": ", value, b"\r\n")
        if not self._complete:
            self.keep_alive = False
        if status in NO_BODY:
            pass
        elif length is not None:
            out.append(b"content-length: %d\r\n" % length)
        elif self._old:
            self._eof_ends, self.keep_alive = True, False
        else:
            self._chunked = True
            out.append(b"transfer-encoding: chunked\r\n")
        out.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")

    def body(self, data: bytes) -> None:
        if self._chunked:
            self._out.append(b"%x\r\n%s\r\n" % (len(data), data))
        else:
            self._out.append(data)

    def flush(self) -> None:
        if self._out and not self.response_complete:
            out, self._out = self._out, []
            self._lane.pen.write(out if len(out) == 1 else [b"".join(out)])

    def end(self) -> None:
        if self.response_complete:
            return
        if self._chunked:
            self._out.append(b"0\r\n\r\n")
        self.flush()
        self.response_complete = True
        self._story = None
        if not self._complete:
            self._lane.linger()
            return
        if not self.keep_alive:
            self._lane.transport.close()
        self._lane.answered()

    def abort(self) -> None:
        if self.response_complete:
            return
        self.flush()
        self.response_complete = True
        self._story = None
        if self._eof_ends:
            self._reset_on_close()
        self._lane.transport.close()
        self._lane.answered()

    def cut(self) -> None:
        """The connection is about to end under it."""
        if self._eof_ends and not self.response_complete:
            self._reset_on_close()

    def _reset_on_close(self) -> None:
        """Where only the connection's end ends a body, a cut must not look like one."""
        sock = self._lane.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
