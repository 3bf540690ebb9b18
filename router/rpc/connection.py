"""What all calls of one peer share: the order of frames, the connection's windows, and what a peer may ask for.

However many frames one read brings, what they allow is used once, after the last of them; and a peer that does not read
is not read from, so that answers to it do not pile up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from hpack import HPACKError

from router.rpc import frames
from router.rpc.complaints import Complaints
from router.rpc.frames import ACK, END_STREAM, HEAD_SIZE, PREFACE, Broken
from router.rpc.heads import MOST_BLOCK, Heads
from router.rpc.keepalive import watch
from router.rpc.stream import UNIMPLEMENTED, WINDOW, Call, Stream

Open = Callable[[str, Stream], Call | None]  # a call by its path; None where there is no such method

MOST_FRAME = 65_536
MOST_STREAMS = 16_384  # a stream lasts as long as its request; an Envoy that needs more opens another connection
OURS = frames.settings({
    frames.HEADER_TABLE_SIZE: 0,  # then equal headers are equal bytes, and need not be read again
    frames.MAX_STREAMS: MOST_STREAMS, frames.INITIAL_WINDOW: WINDOW, frames.MAX_FRAME: MOST_FRAME,
    frames.MAX_HEADERS: MOST_BLOCK,
})  # fmt: skip
GRANT = 1 << 30  # bytes that a peer may send ahead on all streams together


class Connection(asyncio.Protocol):
    """window, first_window: bytes that the peer takes now, and on a new stream
    blocked, narrow: streams that wait for more of the first, and for more of their own
    """

    def __init__(self, opening: Open, most_message: int, there: set[Connection], complaints: Complaints) -> None:
        self._opening, self.most_message, self._there = opening, most_message, there
        self._complaints = complaints
        self.window = self.first_window = frames.DEFAULT_WINDOW
        self.most_frame = frames.DEFAULT_FRAME
        self.streams: dict[int, Stream] = {}
        self.blocked: dict[Stream, None] = {}
        self.narrow: dict[Stream, None] = {}
        self._widened: dict[Stream, None] = {}  # by this read
        self._heads = Heads()
        self._buffer = b""
        self._out: list[bytes] = []
        self._reading = self._greeted = self._leaving = False
        self._last = self._granted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._there.add(self)
        watch(transport.get_extra_info("socket"))
        transport.write(OURS + frames.update(0, GRANT - frames.DEFAULT_WINDOW))  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        self._there.discard(self)
        for stream in list(self.streams.values()):
            stream.close()

    def data_received(self, data: bytes) -> None:
        self._reading = True
        try:
            self._read(self._buffer + data if self._buffer else data)
            if self._widened or (self.blocked and self.window > 0):
                self._use_windows()
        except Broken as wrong:
            self._break(wrong.code, str(wrong))
        except HPACKError:
            self._break(frames.COMPRESSION_ERROR, "the headers could not be read")
        except Exception:
            self._complaints.say("a fault in the picker", fault=True)
            self._break(frames.INTERNAL_ERROR, "a fault here")
        finally:
            self._reading = False
            self._send()

    def pause_writing(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

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
        self.unblock(stream)
        if self._leaving and not self.streams:
            self._send()
            self.transport.close()

    def unblock(self, stream: Stream) -> None:
        self.blocked.pop(stream, None)
        self.narrow.pop(stream, None)

    def widened(self, stream: Stream) -> None:
        """The peer takes more of this stream."""
        self._widened[stream] = None

    def _use_windows(self) -> None:
        widened, self._widened = self._widened, {}
        for stream in widened:
            stream.flush()
        for stream in list(self.blocked):
            if self.window <= 0:
                return
            stream.flush()

    def _send(self) -> None:
        if self._out:
            out, self._out = self._out, []
            if not self.transport.is_closing():
                self.transport.write(b"".join(out))

    def _break(self, code: int, why: str) -> None:
        self._complaints.say(f"a peer of the picker broke HTTP/2: {why}")
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
        if self._heads.open and kind != frames.CONTINUATION:
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
            stream.take(frames.unpadded(payload, flags), len(payload), last=bool(flags & END_STREAM))
        elif number > self._last or not number % 2:
            raise Broken(frames.PROTOCOL_ERROR, "data of a stream that is not open")

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        if self._heads.begin(flags, number, payload):
            self._opened(number)

    def _continued(self, flags: int, number: int, payload: bytes) -> None:
        if self._heads.go_on(flags, number, payload):
            self._opened(number)

    def _opened(self, number: int) -> None:
        path = self._heads.path()
        stream = self.streams.get(number)
        if stream is not None:  # a client's trailers
            stream.take(b"", 0, last=True)
            return
        if number <= self._last:
            return  # trailers of a call that is over
        self._last = number
        if len(self.streams) >= MOST_STREAMS:
            self._out.append(frames.reset(number, frames.REFUSED_STREAM))
            return
        stream = self.streams[number] = Stream(self, number)
        call = stream.call = None if self._leaving else self._opening(path, stream)
        stream.heard_all = self._heads.ends
        if call is None:
            stream.end(UNIMPLEMENTED, "there is no such method")
        elif stream.heard_all:
            call.half_closed()

    def _reset(self, flags: int, number: int, payload: bytes) -> None:
        if number in self.streams:
            self.streams[number].close()

    def _settings(self, flags: int, number: int, payload: bytes) -> None:
        before = self.first_window
        for name, value in frames.read_settings(payload):
            if name == frames.INITIAL_WINDOW:
                if value > frames.MOST_WINDOW:
                    raise Broken(frames.FLOW_CONTROL_ERROR, "a window of more than 2^31-1")
                self.first_window = value
            elif name == frames.MAX_FRAME:
                self.most_frame = min(max(value, frames.DEFAULT_FRAME), MOST_FRAME)
        if self.first_window > before and self.narrow:
            self._widened.update(self.narrow)
            self.narrow.clear()
        if not flags & ACK:
            self._out.append(frames.frame(frames.SETTINGS, ACK, 0))

    def _ping(self, flags: int, number: int, payload: bytes) -> None:
        if not flags & ACK:
            self._out.append(frames.frame(frames.PING, ACK, 0, payload))

    def _window_update(self, flags: int, number: int, payload: bytes) -> None:
        by = frames.word(payload)
        if number:
            if number in self.streams:
                self.streams[number].widen(by)
            return
        self.window += by
        if self.window > frames.MOST_WINDOW:
            raise Broken(frames.FLOW_CONTROL_ERROR, "a window of more than 2^31-1")

    # A priority or a farewell asks for nothing, and what is unknown is to be ignored.
    _STEPS: ClassVar[dict[int, Callable[[Connection, int, int, bytes], None]]] = {
        frames.HEADERS: _headers, frames.CONTINUATION: _continued, frames.RST_STREAM: _reset,
        frames.SETTINGS: _settings, frames.PING: _ping, frames.WINDOW_UPDATE: _window_update,
    }  # fmt: skip
