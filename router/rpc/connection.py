"""What all calls of one peer share: the frames' order, the headers' state, the windows of the whole connection."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import ClassVar

from hpack import Decoder, HPACKError

from router.rpc import frames
from router.rpc.frames import ACK, END_HEADERS, END_STREAM, HEAD_SIZE, PREFACE, Broken
from router.rpc.stream import UNIMPLEMENTED, WINDOW, Call, Stream

log = logging.getLogger("router")

Open = Callable[[str, Stream], Call | None]  # a call by its path; None where there is no such method

MOST_FRAME = 65_536
MOST_BLOCK = 65_536  # bytes of one request's headers
MOST_STREAMS = 1_000_000  # a stream lasts as long as its request
MOST_KNOWN = 1024  # header blocks whose path is remembered
OURS = frames.settings({
    frames.HEADER_TABLE_SIZE: 0,  # then equal headers are equal bytes, and need not be read again
    frames.MAX_STREAMS: MOST_STREAMS, frames.INITIAL_WINDOW: WINDOW, frames.MAX_FRAME: MOST_FRAME,
    frames.MAX_HEADERS: MOST_BLOCK,
})  # fmt: skip
GRANT = 1 << 30  # bytes that a peer may send ahead on all streams together
IDLE, EVERY, TIMES = 20, 5, 3  # seconds: a peer whose machine is gone is noticed, and its calls end


class Connection(asyncio.Protocol):
    """`window`: bytes that the peer takes now; `blocked`: the streams that wait for more."""

    def __init__(self, opening: Open, most_message: int, there: set[Connection]) -> None:
        self._opening, self.most_message, self._there = opening, most_message, there
        self.window, self.most_frame = frames.DEFAULT_WINDOW, frames.DEFAULT_FRAME
        self.streams: dict[int, Stream] = {}
        self.blocked: set[Stream] = set()
        self._stream_window = frames.DEFAULT_WINDOW
        self._decoder = Decoder(MOST_BLOCK)
        self._known: dict[bytes, str] = {}
        self._buffer = b""
        self._out: list[bytes] = []
        self._reading = self._greeted = self._leaving = False
        self._block: tuple[int, int, bytes] | None = None  # a request's headers, as far as they have come
        self._last = self._granted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._there.add(self)
        _watch(transport.get_extra_info("socket"))
        transport.write(OURS + frames.update(0, GRANT - frames.DEFAULT_WINDOW))  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        self._there.discard(self)
        for stream in list(self.streams.values()):
            stream.close()

    def data_received(self, data: bytes) -> None:
        self._reading = True
        try:
            self._read(self._buffer + data if self._buffer else data)
        except Broken as wrong:
            self._break(wrong.code, str(wrong))
        except HPACKError:
            self._break(frames.COMPRESSION_ERROR, "the headers could not be read")
        except Exception:
            log.exception("a fault in the picker")
            self._break(frames.INTERNAL_ERROR, "a fault here")
        finally:
            self._reading = False
            self._send()

    def put(self, data: bytes) -> None:
        """Send; what comes of one read goes out in one write."""
        self._out.append(data)
        if not self._reading:
            self._send()

    def leave(self) -> None:
        """No new calls; close when the last is over."""
        self._leaving = True
        self.put(frames.goodbye(self._last, frames.NO_ERROR))
        if not self.streams:
            self.transport.close()

    def forget(self, stream: Stream) -> None:
        self.streams.pop(stream.id, None)
        self.blocked.discard(stream)
        if self._leaving and not self.streams:
            self._send()
            self.transport.close()

    def _send(self) -> None:
        if self._out:
            out, self._out = self._out, []
            if not self.transport.is_closing():
                self.transport.write(b"".join(out))

    def _break(self, code: int, why: str) -> None:
        log.warning("a peer of the picker broke HTTP/2: %s", why)
        self._out.append(frames.goodbye(self._last, code))
        self._reading = False
        self._send()
        self.transport.close()

    # Reading.

    def _read(self, data: bytes) -> None:
        at, size = 0, len(data)
        if not self._greeted:
            if size < len(PREFACE) and PREFACE.startswith(data):
                self._buffer = data
                return
            if not data.startswith(PREFACE):
                raise Broken(frames.PROTOCOL_ERROR, "this is gRPC, and the peer speaks something else")
            self._greeted, at = True, len(PREFACE)
        while size - at >= HEAD_SIZE:
            length, kind, flags, number = frames.head_of(data, at)
            if length > MOST_FRAME:
                raise Broken(frames.FRAME_SIZE_ERROR, "a frame of more than SETTINGS_MAX_FRAME_SIZE")
            end = at + HEAD_SIZE + length
            if end > size:
                break
            self._frame(kind, flags, number, data[at + HEAD_SIZE : end])
            at = end
        self._buffer = data[at:]

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is not None and kind != frames.CONTINUATION:
            raise Broken(frames.PROTOCOL_ERROR, "another frame within a request's headers")
        if kind == frames.DATA:
            self._data(flags, number, payload)
        elif kind in self._STEPS:
            self._STEPS[kind](self, flags, number, payload)
        elif kind == frames.PUSH_PROMISE:
            raise Broken(frames.PROTOCOL_ERROR, "a client that pushes")

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        self._granted += len(payload)
        if self._granted > GRANT // 2:
            self._out.append(frames.update(0, self._granted))
            self._granted = 0
        stream = self.streams.get(number)
        if stream is not None:
            stream.take(frames.unpadded(payload, flags), last=bool(flags & END_STREAM))
        elif number > self._last or not number % 2:
            raise Broken(frames.PROTOCOL_ERROR, "data of a stream that is not open")

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        payload = frames.unpadded(payload, flags)
        if flags & frames.PRIORITISED:
            payload = payload[5:]
        if not number % 2:
            raise Broken(frames.PROTOCOL_ERROR, "a stream with a number that no client may give")
        self._block = flags & END_STREAM, number, payload
        if flags & END_HEADERS:
            self._opened()

    def _continued(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None or self._block[1] != number:
            raise Broken(frames.PROTOCOL_ERROR, "headers go on that did not begin")
        self._block = self._block[0], number, self._block[2] + payload
        if len(self._block[2]) > MOST_BLOCK:
            raise Broken(frames.ENHANCE_YOUR_CALM, "a request's headers are too large")
        if flags & END_HEADERS:
            self._opened()

    def _opened(self) -> None:
        assert self._block is not None
        (ends, number, block), self._block = self._block, None
        path = self._path_in(block)
        stream = self.streams.get(number)
        if stream is not None:  # a client's trailers
            stream.take(b"", last=True)
            return
        if number <= self._last:
            return  # trailers of a call that is over
        self._last = number
        stream = self.streams[number] = Stream(self, number, self._stream_window)
        call = stream.call = None if self._leaving else self._opening(path, stream)
        stream.heard_all = bool(ends)
        if call is None:
            stream.end(UNIMPLEMENTED, "there is no such method")
        elif ends:
            call.half_closed()

    def _path_in(self, block: bytes) -> str:
        """The headers must be read even where nobody wants them, unless nothing is remembered of them."""
        stateless = self._decoder.header_table_size == 0
        known = self._known.get(block) if stateless else None
        if known is None:
            headers = {bytes(name): bytes(value) for name, value in self._decoder.decode(block, raw=True)}
            known = headers.get(b":path", b"").decode("latin-1")
            if stateless and len(self._known) < MOST_KNOWN:
                self._known[block] = known
        return known

    def _reset(self, flags: int, number: int, payload: bytes) -> None:
        if number in self.streams:
            self.streams[number].close()

    def _settings(self, flags: int, number: int, payload: bytes) -> None:
        for name, value in frames.read_settings(payload):
            if name == frames.INITIAL_WINDOW:
                if value > frames.MOST_WINDOW:
                    raise Broken(frames.FLOW_CONTROL_ERROR, "a window of more than 2^31-1")
                by, self._stream_window = value - self._stream_window, value
                for stream in list(self.streams.values()):
                    stream.widen(by)
            elif name == frames.MAX_FRAME:
                self.most_frame = min(value, MOST_FRAME)
        if not flags & ACK:
            self._out.append(frames.frame(frames.SETTINGS, ACK, 0))

    def _ping(self, flags: int, number: int, payload: bytes) -> None:
        if not flags & ACK:
            self._out.append(frames.frame(frames.PING, ACK, 0, payload))

    def _widened(self, flags: int, number: int, payload: bytes) -> None:
        by = frames.word(payload)
        if number:
            if number in self.streams:
                self.streams[number].widen(by)
            return
        self.window += by
        if self.window > frames.MOST_WINDOW:
            raise Broken(frames.FLOW_CONTROL_ERROR, "a window of more than 2^31-1")
        for stream in list(self.blocked):
            stream.flush()

    # A priority or a farewell asks for nothing, and what is unknown is to be ignored.
    _STEPS: ClassVar[dict[int, Callable[[Connection, int, int, bytes], None]]] = {
        frames.HEADERS: _headers, frames.CONTINUATION: _continued, frames.RST_STREAM: _reset,
        frames.SETTINGS: _settings, frames.PING: _ping, frames.WINDOW_UPDATE: _widened,
    }  # fmt: skip


def _watch(connection: socket.socket | None) -> None:
    """The kernel asks a silent peer whether it is there."""
    if connection is None or connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", IDLE), ("TCP_KEEPINTVL", EVERY), ("TCP_KEEPCNT", TIMES)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
