"""A client on a raw socket: it sends what it is told, byte for byte, and reads as much as it is told."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 10.0
CHAT = "/v1/chat/completions"
HELLO = b'{"model": "m", "messages": [{"role": "user", "content": "hello"}]}'
STREAM = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hello"}]}'


def post(
    body: bytes = HELLO,
    path: str = CHAT,
    headers: Sequence[tuple[str, str | bytes]] = (),
    *,
    version: str = "1.1",
    length: int | None = None,
) -> bytes:
    """A request's bytes; the length is declared unless a framing header is among `headers`."""
    lines = [f"POST {path} HTTP/{version}".encode(), b"Host: localhost", b"Content-Type: application/json"]
    for name, value in headers:
        lines.append(name.encode() + b": " + (value if isinstance(value, bytes) else value.encode("latin-1")))
    framed = {name.lower() for name, _ in headers} & {"content-length", "transfer-encoding"}
    if not framed:
        lines.append(b"Content-Length: %d" % (len(body) if length is None else length))
    return b"\r\n".join([*lines, b"", b""]) + body


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode("latin-1")


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def in_chunks(body: bytes = HELLO, path: str = CHAT, size: int = 7, *headers: tuple[str, str]) -> bytes:
    """The same request, its body in chunks of this size."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return post(b"", path, [("Transfer-Encoding", "chunked"), *headers]) + chunked(*pieces)


@dataclass
class Response:
    status: int
    version: str
    headers: list[tuple[str, str]]
    pieces: list[bytes] = field(default_factory=list)
    whole: bool = False  # it ended as its framing promised

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def one(self, name: str) -> str | None:
        found = self.all(name)
        assert len(found) < 2, f"{name} came {len(found)} times"
        return found[0] if found else None

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        """The code of an error in OpenAI's form."""
        return self.json()["error"]["code"]


class Client:
    """One connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int, *, receive_buffer: int | None = None) -> "Client":
        sock = socket.socket()
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        return cls(*await asyncio.open_connection(sock=sock, limit=receive_buffer or 65_536))

    async def send(self, *parts: bytes, gap: float = 0.0) -> None:
        for at, part in enumerate(parts):
            if at and gap:
                await asyncio.sleep(gap)
            self._writer.write(part)
            async with asyncio.timeout(PATIENCE):
                await self._writer.drain()

    async def head(self) -> Response:
        """The next answer's head."""
        async with asyncio.timeout(PATIENCE):
            data = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = data[:-4].decode("latin-1").split("\r\n")
        version, status = first.split(" ")[:2]
        pairs = [line.split(": ", 1) for line in lines]
        return Response(int(status), version.removeprefix("HTTP/"), [(pair[0], pair[1]) for pair in pairs])

    async def piece(self, answer: Response) -> bytes | None:
        """The next piece of its body: a chunk, or what one read gave. None at its end, whole or not."""
        async with asyncio.timeout(PATIENCE):
            piece = await self._piece(answer)
        if piece is not None:
            answer.pieces.append(piece)
        return piece

    async def _piece(self, answer: Response) -> bytes | None:
        try:
            if answer.one("transfer-encoding") == "chunked":
                size = int(await self._reader.readuntil(b"\r\n"), 16)
                data = await self._reader.readexactly(size + 2)
                answer.whole = not size
                return data[:-2] or None
            if (length := answer.one("content-length")) is not None:
                left = int(length) - len(answer.body)
                data = await self._reader.read(min(left, 65_536)) if left else b""
                answer.whole = not left
                return data or None
            data = await self._reader.read(65_536)
            answer.whole = not data
            return data or None
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def rest(self, answer: Response) -> Response:
        """Read its body to the end."""
        if answer.status not in (204, 304) and answer.status >= 200:
            while await self.piece(answer) is not None:
                pass
        else:
            answer.whole = True
        return answer

    async def answer(self) -> Response:
        return await self.rest(await self.head())

    async def ask(self, *request: bytes) -> Response:
        await self.send(*(request or (post(),)))
        return await self.answer()

    async def closed_or_answered(self) -> Response | None:
        """An answer, whole or cut; None where the connection closes without one."""
        try:
            return await self.answer()
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def closed(self) -> bytes:
        """Wait for the gateway to close; what came before that."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._reader.read()
        except ConnectionError:
            return b""

    def half_close(self) -> None:
        self._writer.write_eof()

    def drop(self, *, reset: bool = False) -> None:
        """Go away, as a killed process does."""
        sock = self._writer.get_extra_info("socket")
        if reset and sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await self._writer.wait_closed()
