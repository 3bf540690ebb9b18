"""One call: messages in, messages out, within what the peer's windows allow."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from router.rpc import frames
from router.rpc.frames import DATA, END_HEADERS, END_STREAM, HEADERS, Broken

if TYPE_CHECKING:
    from router.rpc.connection import Connection

OK, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 3, 8, 12, 13  # gRPC's status codes
WINDOW = 1 << 20  # bytes that a peer may send ahead on one stream
PREFIX = 5  # bytes before each message


class Call(Protocol):
    """What a stream is about. `over` comes once, whoever ended it."""

    def message(self, data: bytes, /) -> None: ...
    def half_closed(self) -> None:
        """The peer will send no more."""

    def over(self) -> None: ...


class Stream:
    """A call's side towards the peer. Every method may be called after its end, without effect.

    more: what the peer takes beyond the first window of its settings, less what it was sent
    backlog: payloads that wait for the peer's windows; while there are any, it is given no room of ours
    """

    __slots__ = ("_begun", "_buffer", "_connection", "_sent", "_taken", "_trailers", "backlog", "call", "ended",
                 "heard_all", "id", "more")  # fmt: skip

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection, self.id = connection, number
        self.more = 0
        self.call: Call | None = None
        self.ended = self.heard_all = self._begun = False
        self.backlog: deque[bytes] = deque()
        self._sent = 0  # bytes of the first of them that are gone already
        self._buffer = bytearray()
        self._taken = 0  # bytes since the peer was last given room
        self._trailers: bytes | None = None  # that wait for the backlog

    def send(self, data: bytes) -> None:
        """Send a message."""
        if self.ended or self._trailers is not None:
            return
        self._begin()
        whole, connection = frames.message(data), self._connection
        size = len(whole)
        fits = size <= self.more + connection.first_window and size <= connection.window
        if fits and not self.backlog and size <= connection.most_frame:
            self.more -= size
            connection.window -= size
            connection.put(frames.frame(DATA, 0, self.id, whole))
        else:
            self.backlog.append(whole)
            self.flush()

    def end(self, status: int = OK, text: str = "") -> None:
        """End the call, once all is sent. What the peer still sends counts no more."""
        if self.ended or self._trailers is not None:
            return
        self._trailers = frames.trailers(status, text)
        self._buffer.clear()
        self.flush()

    def abort(self, code: int = frames.CANCEL) -> None:
        """End it at once, whether or not the peer takes what is left."""
        if not self.ended:
            self._connection.put(frames.reset(self.id, code))
            self.close()

    def flush(self) -> None:
        """Send what the windows allow."""
        if self.backlog and not self._send_backlog():
            return
        if self._trailers is not None and not self.ended:
            connection = self._connection
            block = self._trailers if self._begun else frames.RESPONSE + self._trailers
            connection.put(frames.frame(HEADERS, END_HEADERS | END_STREAM, self.id, block))
            if not self.heard_all:
                connection.put(frames.reset(self.id, frames.NO_ERROR))
            self.close()

    def _send_backlog(self) -> bool:
        """Whether all of it is gone."""
        connection, backlog = self._connection, self.backlog
        connection.unblock(self)
        while backlog:
            own = self.more + connection.first_window
            room = min(own, connection.window, connection.most_frame)
            if room <= 0:
                (connection.narrow if own <= 0 else connection.blocked)[self] = None
                return False
            whole, at = backlog[0], self._sent
            part = whole[at : at + room]
            self._sent += len(part)
            if self._sent == len(whole):
                backlog.popleft()
                self._sent = 0
            self.more -= len(part)
            connection.window -= len(part)
            connection.put(frames.frame(DATA, 0, self.id, part))
        self._give_room()
        return True

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._connection.put(frames.frame(HEADERS, END_HEADERS, self.id, frames.RESPONSE))

    # The connection's side.

    def take(self, data: bytes, size: int, *, last: bool) -> None:
        """Bytes came, in a frame's payload of `size`."""
        self._taken += size
        if self.heard_all or self._taken > WINDOW:
            self.abort(frames.STREAM_CLOSED if self.heard_all else frames.FLOW_CONTROL_ERROR)
            return
        buffer = self._buffer
        if self._trailers is not None:
            pass
        elif not buffer and len(data) >= PREFIX and frames.prefix_of(data) == (0, len(data) - PREFIX):
            self._heard(data[PREFIX:])  # one frame, one message: nearly always
        else:
            buffer += data
            self._read_buffer()
        if last and not self.ended:
            self.heard_all = True
            if self.call is not None and self._trailers is None:
                self.call.half_closed()
        elif self._taken > WINDOW // 2:
            self._give_room()

    def _give_room(self) -> None:
        """The peer may send more, unless it does not take what came of the last."""
        if self._taken > WINDOW // 2 and not (self.backlog or self.heard_all or self._trailers or self.ended):
            self._connection.put(frames.update(self.id, self._taken))
            self._taken = 0

    def _read_buffer(self) -> None:
        buffer = self._buffer
        while len(buffer) >= PREFIX and self._trailers is None and not self.ended:
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
        """The peer takes more. Raises Broken where that is without end."""
        self.more += by
        if self.more + self._connection.first_window > frames.MOST_WINDOW:
            raise Broken(frames.FLOW_CONTROL_ERROR, "a window of more than 2^31-1")
        if self.backlog:
            self._connection.widened(self)

    def close(self) -> None:
        """It is over, for whatever reason."""
        if self.ended:
            return
        self.ended = True
        self.backlog.clear()
        self._buffer.clear()
        self._connection.forget(self)
        call, self.call = self.call, None
        if call is not None:
            call.over()
