"""One call: messages in, messages out, within what the peer's windows allow."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from router.rpc import frames
from router.rpc.frames import DATA, END_HEADERS, END_STREAM, HEADERS, Broken

if TYPE_CHECKING:
    from router.rpc.connection import Connection

OK, CANCELLED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 1, 8, 12, 13  # gRPC's status codes
WINDOW = 1 << 20  # bytes that a peer may send ahead on one stream
PREFIX = 5  # bytes before each message


class Call(Protocol):
    """What a stream is about. `over` comes once, whoever ended it."""

    def message(self, data: bytes, /) -> None: ...
    def half_closed(self) -> None:
        """The peer will send no more."""

    def over(self) -> None: ...


class Stream:
    """A call's side towards the peer. Every method may be called after its end, without effect."""

    __slots__ = ("_begun", "_buffer", "_connection", "_taken", "_trailers", "backlog", "call", "ended", "heard_all",
                 "id", "window")  # fmt: skip

    def __init__(self, connection: Connection, number: int, window: int) -> None:
        self._connection, self.id, self.window = connection, number, window
        self.call: Call | None = None
        self.ended = self.heard_all = self._begun = False
        self.backlog: deque[bytes] = deque()  # payloads that wait for the peer's windows
        self._buffer = bytearray()
        self._taken = 0
        self._trailers: bytes | None = None  # that wait for the backlog

    def send(self, data: bytes) -> None:
        """Send a message."""
        if self.ended or self._trailers is not None:
            return
        self._begin()
        whole, connection = frames.message(data), self._connection
        size = len(whole)
        if not self.backlog and size <= self.window and size <= connection.window and size <= connection.most_frame:
            self.window -= size
            connection.window -= size
            connection.put(frames.frame(DATA, 0, self.id, whole))
        else:
            self.backlog.append(whole)
            self.flush()

    def end(self, status: int = OK, text: str = "") -> None:
        """End the call, once all is sent."""
        if self.ended or self._trailers is not None:
            return
        self._trailers = frames.trailers(status, text)
        self.flush()

    def flush(self) -> None:
        """Send what the windows allow."""
        connection, backlog = self._connection, self.backlog
        while backlog:
            room = min(self.window, connection.window, connection.most_frame)
            if room <= 0:
                connection.blocked.add(self)
                return
            connection.blocked.discard(self)
            whole = backlog.popleft()
            part = whole[:room]
            if len(part) < len(whole):
                backlog.appendleft(whole[room:])
            self.window -= len(part)
            connection.window -= len(part)
            connection.put(frames.frame(DATA, 0, self.id, part))
        if self._trailers is not None and not self.ended:
            block = self._trailers if self._begun else frames.RESPONSE + self._trailers
            connection.put(frames.frame(HEADERS, END_HEADERS | END_STREAM, self.id, block))
            if not self.heard_all:
                connection.put(frames.reset(self.id, frames.NO_ERROR))
            self.close()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._connection.put(frames.frame(HEADERS, END_HEADERS, self.id, frames.RESPONSE))

    # The connection's side.

    def take(self, data: bytes, *, last: bool) -> None:
        """Bytes came. Raises Broken for what is no message."""
        self._taken += len(data)
        if self._taken > WINDOW // 2 and not last:
            self._connection.put(frames.update(self.id, self._taken))
            self._taken = 0
        buffer = self._buffer
        if not buffer and len(data) >= PREFIX and frames.prefix_of(data) == (0, len(data) - PREFIX):
            self._heard(data[PREFIX:])  # one frame, one message: nearly always
        else:
            buffer += data
            self._read_buffer()
        if last and not self.ended:
            self.heard_all = True
            if self.call is not None:
                self.call.half_closed()

    def _read_buffer(self) -> None:
        buffer = self._buffer
        while len(buffer) >= PREFIX and not self.ended:
            compressed, size = frames.prefix_of(buffer)
            if compressed:
                self.end(UNIMPLEMENTED, "compressed messages are not taken")
                return
            if size > self._connection.most_message:
                self.end(RESOURCE_EXHAUSTED, "the message is too large")
                return
            if len(buffer) < PREFIX + size:
                return
            data = bytes(memoryview(buffer)[PREFIX : PREFIX + size])
            del buffer[: PREFIX + size]
            self._heard(data)

    def _heard(self, data: bytes) -> None:
        if self.call is not None and not self.ended:
            self.call.message(data)

    def widen(self, by: int) -> None:
        """The peer takes more."""
        self.window += by
        if self.window > frames.MOST_WINDOW:
            raise Broken(frames.FLOW_CONTROL_ERROR, "a window of more than 2^31-1")
        if by > 0 and (self.backlog or self._trailers is not None):
            self.flush()

    def close(self) -> None:
        """It is over, for whatever reason."""
        if self.ended:
            return
        self.ended = True
        self.backlog.clear()
        self._connection.forget(self)
        call, self.call = self.call, None
        if call is not None:
            call.over()
