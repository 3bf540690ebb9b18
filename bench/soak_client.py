"""One request on a raw connection, in the ways clients behave: patient, slow to read, gone before the end."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import httptools

SILENCE = 60.0  # seconds without a byte after which an answer is held to be lost
CHUNK = 4096


@dataclass(slots=True)
class Outcome:
    """What came of one request. `whole`: the answer came to its proper end."""

    began: float
    ended: float = 0.0
    status: int = 0
    worker: str = ""
    request_id: str = ""
    retry_after: str = ""
    body: bytearray = field(default_factory=bytearray)
    whole: bool = False
    left: bool = False  # the client went away itself
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Manner:
    """leave_after: seconds after which the client goes away; pause: seconds between two small reads."""

    leave_after: float | None = None
    pause: float = 0.0


class Connection:
    """A keep-alive connection; opened when it is needed, and anew after it was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._outcome: Outcome
        self._keep = False

    async def ask(self, path: str, body: bytes, request_id: str, manner: Manner) -> Outcome:
        """Send it and read the answer. Never raises for what the other side does."""
        outcome = self._outcome = Outcome(began=time.monotonic())
        head = (
            f"POST {path} HTTP/1.1\r\nhost: soak\r\ncontent-type: application/json\r\n"
            f"x-request-id: {request_id}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._keep = False
        try:
            async with asyncio.timeout(manner.leave_after):
                await self._exchange(head.encode() + body, manner)
        except TimeoutError:
            outcome.left = manner.leave_after is not None
        except (OSError, httptools.HttpParserError, asyncio.IncompleteReadError):
            pass
        if not (outcome.whole and self._keep):
            self.close()
        outcome.ended = time.monotonic()
        return outcome

    def close(self) -> None:
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            writer.transport.abort()

    async def _exchange(self, request: bytes, manner: Manner) -> None:
        if self._writer is None:
            limit = CHUNK if manner.pause else 2**20
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=limit)
        assert self._reader is not None
        self._writer.write(request)
        await self._writer.drain()
        self._parser = httptools.HttpResponseParser(self)
        while not self._outcome.whole:
            try:
                data = await asyncio.wait_for(self._reader.read(CHUNK if manner.pause else 2**16), SILENCE)
            except TimeoutError:
                self._outcome.silent = True
                return
            if not data:
                return
            self._parser.feed_data(data)
            if manner.pause:
                await asyncio.sleep(manner.pause)

    # httptools' side

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"x-router-worker":
            self._outcome.worker = value.decode()
        elif name == b"x-request-id":
            self._outcome.request_id = value.decode()
        elif name == b"retry-after":
            self._outcome.retry_after = value.decode()

    def on_headers_complete(self) -> None:
        self._outcome.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._outcome.body += body

    def on_message_complete(self) -> None:
        self._outcome.whole = True
        self._keep = self._parser.should_keep_alive()
