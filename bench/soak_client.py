"""One request on a raw connection, in the ways clients behave: patient, slow to read, gone before the end."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import httptools

SILENCE = 60.0  # seconds after which an answer is held to be lost; the longest takes about ten
PORTION = 8192  # bytes that a slow reader takes before it pauses


@dataclass(slots=True)
class Outcome:
    """What came of one request. `whole`: the answer came to its proper end."""

    began: float
    ended: float = 0.0
    status: int = 0
    worker: str = ""
    request_id: str = ""
    body: bytearray = field(default_factory=bytearray)
    whole: bool = False
    left: bool = False  # the client went away itself
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Manner:
    """leave_after: seconds after which the client goes away; pause: seconds between two portions that it reads."""

    leave_after: float | None = None
    pause: float = 0.0


class Connection(asyncio.Protocol):
    """A keep-alive connection; opened when it is needed, and anew after it was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outcome: Outcome | None = None
        self._over: asyncio.Future[None]
        self._keep = False
        self._pause, self._read = 0.0, 0

    async def ask(self, path: str, body: bytes, request_id: str, manner: Manner) -> Outcome:
        """Send it and read the answer. Never raises for what the other side does."""
        outcome = self._outcome = Outcome(began=time.monotonic())
        head = (
            f"POST {path} HTTP/1.1\r\nhost: soak\r\ncontent-type: application/json\r\n"
            f"x-request-id: {request_id}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._keep, self._pause, self._read = False, manner.pause, 0
        self._over = self._loop.create_future()
        try:
            async with asyncio.timeout(manner.leave_after or SILENCE):
                if self._transport is None:
                    await self._loop.create_connection(lambda: self, "127.0.0.1", self._port)
                assert self._transport is not None
                self._parser = httptools.HttpResponseParser(self)
                self._transport.write(head.encode() + body)
                await self._over
        except TimeoutError:
            outcome.left, outcome.silent = manner.leave_after is not None, manner.leave_after is None
        except OSError:
            pass
        if not (outcome.whole and self._keep):
            self.close()
        outcome.ended = time.monotonic()
        return outcome

    def close(self) -> None:
        self._outcome = None
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._outcome is None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._done()
            return
        if self._pause and not self._outcome.whole:
            self._read += len(data)
            if self._read >= PORTION and self._transport is not None:
                self._read = 0
                self._transport.pause_reading()
                self._loop.call_later(self._pause, self._go_on)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._done()

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _done(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    # httptools' side

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._outcome is None:
            return
        name = name.lower()
        if name == b"x-router-worker":
            self._outcome.worker = value.decode()
        elif name == b"x-request-id":
            self._outcome.request_id = value.decode()

    def on_headers_complete(self) -> None:
        if self._outcome is not None:
            self._outcome.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self._outcome is not None:
            self._outcome.body += body

    def on_message_complete(self) -> None:
        if self._outcome is not None:
            self._outcome.whole = True
            self._keep = self._parser.should_keep_alive()
        self._done()
