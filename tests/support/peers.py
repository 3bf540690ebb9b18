"""A peer of the picker's gRPC by hand: frames go in, frames come out, without a socket."""

from __future__ import annotations

from typing import Any

from hpack import Decoder, Encoder

from router.rpc import frames
from router.rpc.complaints import Complaints
from router.rpc.connection import Connection
from router.rpc.stream import Stream

PATH = "/a.Service/Method"


class Noted:
    """A call that writes down what it is told."""

    def __init__(self, path: str, stream: Stream) -> None:
        self.path, self.stream = path, stream
        self.told: list[Any] = []

    def message(self, data: bytes) -> None:
        self.told.append(data)

    def half_closed(self) -> None:
        self.told.append("half closed")

    def over(self) -> None:
        self.told.append("over")


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""
        self.closed = False
        self.reading = True

    def get_extra_info(self, name: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        self.data += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Peer:
    def __init__(self, *, most_message: int = 1 << 20, greet: bool = True) -> None:
        self.calls: list[Noted] = []
        self.there: set[Connection] = set()
        self.wire, self.encoder, self.decoder = Wire(), Encoder(), Decoder()
        self.connection = Connection(self._open, most_message, self.there, Complaints(lambda: 0.0))
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]
        if greet:
            self.send(frames.PREFACE + frames.settings({}))
            self.encoder.header_table_size = 0
            self.frames()

    def _open(self, path: str, stream: Stream) -> Noted | None:
        if path != PATH:
            return None
        self.calls.append(Noted(path, stream))
        return self.calls[-1]

    def send(self, *data: bytes) -> None:
        self.connection.data_received(b"".join(data))

    def head(self, number: int, path: str = PATH, *, end: bool = False) -> bytes:
        block = self.encoder.encode([(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
                                     ("content-type", "application/grpc"), ("te", "trailers")])  # fmt: skip
        return frames.frame(frames.HEADERS, frames.END_HEADERS | end, number, block)

    def data(self, number: int, message: bytes, *, end: bool = False) -> bytes:
        return frames.frame(frames.DATA, int(end), number, frames.message(message))

    def call(self, number: int = 1) -> Noted:
        self.send(self.head(number))
        return self.calls[-1]

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """What came since the last look: type, flags, stream, payload."""
        data, self.wire.data = self.wire.data, b""
        found, at = [], 0
        while at < len(data):
            size, kind, flags, number = frames.head_of(data, at)
            found.append((kind, flags, number, data[at + 9 : at + 9 + size]))
            at += 9 + size
        assert at == len(data)
        return found

    def kinds(self) -> list[int]:
        return [kind for kind, *_ in self.frames()]

    def ended_with(self) -> dict[str, str]:
        """The trailers that came."""
        blocks = [payload for kind, flags, _, payload in self.frames() if kind == frames.HEADERS and flags & 1]
        [block] = blocks
        return {str(name): str(value) for name, value in self.decoder.decode(block)}
