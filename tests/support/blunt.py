"""A worker below HTTP: each POST's connection is handed to a function as soon as the request's head is there.

For what the scripted worker cannot do since it reads a request whole: answer before the body is read, stop reading,
hang in a TLS handshake. Probes are answered well.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Handler = Callable[["Wire"], Awaitable[None]]
MODELS = b'{"object": "list", "data": [{"id": "m", "object": "model"}]}'


class Wire:
    """One connection, at one request's head."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.head = b""

    @property
    def length(self) -> int:
        lines = self.head.lower().split(b"\r\n")
        return next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)

    async def body(self) -> bytes:
        return await self.reader.readexactly(self.length)

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


class Blunt:
    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.accepted = self.requests = self.gone = 0
        self.port = 0
        self.bodies: list[bytes] = []

    @property
    def id(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("worker blunt")
        self.accepted += 1
        wire = Wire(reader, writer)
        try:
            while True:
                wire.head = await reader.readuntil(b"\r\n\r\n")
                if wire.head.startswith(b"GET"):
                    await wire.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(MODELS), MODELS))
                    continue
                self.requests += 1
                await self.handler(wire)
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, OSError):
            self.gone += 1
        finally:
            writer.close()


@asynccontextmanager
async def blunt(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Blunt]:
    worker = Blunt(handler)
    server = await asyncio.start_server(worker.serve, "127.0.0.1", 0, ssl=tls, limit=65_536)
    worker.port = server.sockets[0].getsockname()[1]
    try:
        yield worker
    finally:
        server.close()
        mine = [task for task in asyncio.all_tasks() if task.get_name() == "worker blunt"]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)


@asynccontextmanager
async def silent() -> AsyncIterator["Silent"]:
    """Connections are accepted, nothing is ever said: a TLS handshake hangs on it."""
    made = Silent()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for writer in made.writers:
            writer.transport.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while made.open:
                    await asyncio.sleep(0.01)


class Silent:
    def __init__(self) -> None:
        self.port = self.open = self.accepted = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("worker silent")
        self.open += 1
        self.accepted += 1
        self.writers.append(writer)
        try:
            while await reader.read(65_536):
                pass
        except OSError:
            pass
        self.open -= 1
        writer.close()
