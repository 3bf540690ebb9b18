"""HTTP/2 frames (RFC 9113, section 4) and gRPC's length-prefixed messages, as bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, PRIORITISED, ACK = 0x1, 0x4, 0x8, 0x20, 0x1  # flags
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, MAX_FRAME, MAX_HEADERS = range(1, 7)  # settings
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 0, 1, 2, 3, 6
STREAM_CLOSED, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 5, 7, 8, 9, 11
HEAD_SIZE = 9
DEFAULT_WINDOW, DEFAULT_FRAME = 65_535, 16_384
MOST_WINDOW = 2**31 - 1

_HEAD = Struct(">HBBBL")  # length's upper two bytes, its last, type, flags, stream
_WORD = Struct(">L")
_SETTING = Struct(">HL")
_PREFIX = Struct(">BL")  # gRPC: compressed or not, length


class Broken(Exception):
    """The peer broke the protocol, and the connection ends; `code` says how."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def head_of(data: bytes | bytearray, at: int) -> tuple[int, int, int, int]:
    """A frame's length, type, flags and stream, from nine bytes."""
    upper, lower, kind, flags, stream = _HEAD.unpack_from(data, at)
    return upper << 8 | lower, kind, flags, stream & MOST_WINDOW


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*each) for each in values.items()))


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    if len(payload) % 6:
        raise Broken(FRAME_SIZE_ERROR, "a SETTINGS frame of no whole number of settings")
    return _SETTING.iter_unpack(payload)


def word(payload: bytes) -> int:
    """The 32 bits of an increment, without the reserved one."""
    if len(payload) != 4:
        raise Broken(FRAME_SIZE_ERROR, "expected four bytes")
    value: int = _WORD.unpack(payload)[0] & MOST_WINDOW
    return value


def update(stream: int, by: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, _WORD.pack(by))


def reset(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, _WORD.pack(code))


def goodbye(last: int, code: int) -> bytes:
    return frame(GOAWAY, 0, 0, _WORD.pack(last) + _WORD.pack(code))


def unpadded(payload: bytes, flags: int) -> bytes:
    """The payload without padding and priority."""
    if flags & PADDED:
        if not payload or payload[0] >= len(payload):
            raise Broken(PROTOCOL_ERROR, "more padding than payload")
        payload = payload[1 : len(payload) - payload[0]]
    return payload


def message(data: bytes) -> bytes:
    """A gRPC message, not compressed."""
    return _PREFIX.pack(0, len(data)) + data


def prefix_of(data: bytes | bytearray) -> tuple[int, int]:
    """Whether the message that begins here is compressed, and its length."""
    compressed, size = _PREFIX.unpack_from(data)
    return compressed, size


def literal(name: bytes, value: bytes) -> bytes:
    """A header that no table remembers (RFC 7541, section 6.2.2); both are shorter than 127 bytes."""
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


RESPONSE = b"\x88" + literal(b"content-type", b"application/grpc")  # 0x88: `:status: 200` of the static table


def trailers(status: int, text: str = "") -> bytes:
    block = literal(b"grpc-status", b"%d" % status)
    return block + literal(b"grpc-message", text.encode()) if text else block
