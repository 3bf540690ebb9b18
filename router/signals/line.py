"""One end of a talk between two processes of this machine over a stream socket: news told, questions asked, answers.

A frame is a length and the MessagePack array `[number, kind, content]`; what the content means is the kind's own
matter. Number 0 is told and expects nothing, n asks, -n answers n. Everything arrives in the order it was sent.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from struct import Struct

import msgspec

log = logging.getLogger("router")

MOST_FRAME = 64 << 20  # bytes; longer is no frame of ours
FAILED = "failed"

_length = Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, str, bytes]).decode


class Line(asyncio.Protocol):
    """`told` gets what is told, `answer` answers what is asked. `ended` is set once the other end has gone and all that
    it said has been heard."""

    def __init__(self, told: Callable[[str, bytes], None], answer: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        self._told, self._answer = told, answer
        self._transport: asyncio.Transport | None = None
        self._read = bytearray()
        self._number = 0
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._overdue: set[int] = set()
        self._answering: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()

    async def open(self, end: socket.socket) -> Line:
        """Talk over this end of a stream socket, which the line now owns."""
        end.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=end)
        return self

    def tell(self, kind: str, content: bytes = b"") -> None:
        self._send(0, kind, content)

    async def ask(self, kind: str, content: bytes, seconds: float) -> bytes:
        """The answer. Raises TimeoutError when it does not come in time, ConnectionError when it never will."""
        if self.ended.is_set():
            raise ConnectionResetError(f"{kind}: the other process has ended")
        self._number += 1
        number = self._number
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._send(number, kind, content)
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            if number in self._asked:  # it may have come just now
                self._overdue.add(number)
            raise
        finally:
            self._asked.pop(number, None)

    @property
    def hangs(self) -> bool:
        """A question was not answered in time, nor since."""
        return bool(self._overdue)

    @property
    def pending(self) -> int:
        """Bytes that the other end has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    async def close(self, seconds: float = 1.0) -> None:
        """Say what is left to say, then hang up."""
        if self._transport is not None:
            self._transport.close()
            try:
                async with asyncio.timeout(seconds):
                    await self.ended.wait()
            except TimeoutError:
                self._transport.abort()

    def _send(self, number: int, kind: str, content: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            frame = _encode((number, kind, content))
            self._transport.write(_length.pack(len(frame)) + frame)

    def _take(self, number: int, kind: str, content: bytes) -> None:
        if number == 0:
            self._told(kind, content)
        elif number > 0:
            task = asyncio.create_task(self._reply(number, kind, content), name=f"answer {kind}")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        else:
            self._overdue.discard(-number)
            asked = self._asked.pop(-number, None)
            if asked is not None and not asked.done():
                if kind == FAILED:
                    asked.set_exception(ConnectionAbortedError("the other process could not answer"))
                else:
                    asked.set_result(content)

    async def _reply(self, number: int, kind: str, content: bytes) -> None:
        try:
            self._send(-number, kind, await self._answer(kind, content))
        except Exception:
            log.exception("a question of another process of this gateway could not be answered: %s", kind)
            self._send(-number, FAILED, b"")

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        read = self._read
        read += data
        at, size = 0, _length.size
        while len(read) - at >= size:
            length: int = _length.unpack_from(read, at)[0]
            if length > MOST_FRAME:
                self._garbled()
                return
            if len(read) - at - size < length:
                break
            frame = bytes(read[at + size : at + size + length])
            at += size + length
            try:
                number, kind, content = _decode(frame)
            except msgspec.MsgspecError:
                self._garbled()
                return
            try:
                self._take(number, kind, content)
            except Exception:
                log.exception("what another process of this gateway told could not be heard: %s", kind)
        del read[:at]

    def _garbled(self) -> None:
        log.error("what another process of this gateway sent was no message")
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ConnectionResetError("the other process has ended"))
        self._overdue.clear()
        self.ended.set()
