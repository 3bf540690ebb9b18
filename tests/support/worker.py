"""A worker made of switches: a raw socket that answers as it is told and writes down what it saw."""

import asyncio
import base64
import gzip
import json
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

JSON = (("content-type", "application/json"),)
EVENTS = (("content-type", "text/event-stream"),)
MOST_BUFFERED = 65_536
Piece = bytes | asyncio.Event
"""Bytes to send, or a gate to wait at."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int = 200
    headers: Sequence[tuple[str, str]] = JSON
    pieces: Sequence[Piece] = (b'{"object": "answer"}',)
    framing: str = "length"  # length, chunked, eof
    length: int | None = None  # declared instead of the true one
    delay: float = 0.0  # before the head
    gap: float = 0.0  # before every piece but the first
    stop: int | None = None  # pieces after which it goes no further; -1: before the head
    ending: str = "close"  # what it does then: close, reset, hang
    keep_alive: bool = True
    raw: bytes | None = None  # instead of a head and pieces
    interim: bytes = b""  # before the head

    def head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} Whatever", *(f"{name}: {value}" for name, value in self.headers)]
        if self.framing == "chunked":
            lines.append("transfer-encoding: chunked")
        elif self.framing == "length":
            true = sum(len(piece) for piece in self.pieces if isinstance(piece, bytes))
            lines.append(f"content-length: {true if self.length is None else self.length}")
        if not self.keep_alive or self.framing == "eof":
            lines.append("connection: close")
        return self.interim + "\r\n".join([*lines, "", ""]).encode("latin-1")

    def framed(self, piece: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(piece), piece) if self.framing == "chunked" else piece

    @property
    def generates(self) -> bool:
        return self.status < 400


def reply(
    body: bytes = b'{"object": "answer"}', status: int = 200, *headers: tuple[str, str], **switches: Any
) -> Answer:
    return Answer(status=status, headers=(*JSON, *headers), pieces=(body,), **switches)


def stream(*pieces: Piece, **switches: Any) -> Answer:
    return Answer(**{"headers": EVENTS, "framing": "chunked", "pieces": pieces, **switches})


def zipped(answer: Answer) -> Answer:
    """The same answer, compressed on the wire, its length that of the wire."""
    whole = gzip.compress(b"".join(piece for piece in answer.pieces if isinstance(piece, bytes)), mtime=0)
    middle = len(whole) // 2
    headers = (*answer.headers, ("content-encoding", "gzip"))
    return replace(answer, headers=headers, pieces=(whole[:middle], whole[middle:]))


def event(text: str, **fields: Any) -> bytes:
    """One chunk of a chat's stream."""
    chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}], **fields}
    return b"data: %s\n\n" % json.dumps(chunk).encode()


DONE = b"data: [DONE]\n\n"


@dataclass
class Seen:
    """A request as it came off the wire."""

    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    connection: int

    def all(self, name: str) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name.encode()]

    def one(self, name: str) -> bytes | None:
        found = self.all(name)
        assert len(found) < 2, f"{name} came {len(found)} times"
        return found[0] if found else None

    def json(self) -> Any:
        return json.loads(self.body)


def cut(data: bytes, *at: int) -> list[bytes]:
    """These bytes in pieces that end at these points; negative ones count from the end."""
    points = sorted(point % len(data) for point in at)
    return [data[one:other] for one, other in zip([0, *points], [*points, len(data)], strict=True)]


def echo(seen: Seen) -> Answer:
    """What came in, told back: method, path and headers, and the exact body in base64."""
    headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in seen.headers]
    body = base64.b64encode(seen.body).decode()
    said = {"method": seen.method, "path": seen.target.decode("latin-1"), "headers": headers, "body": body}
    return reply(json.dumps(said).encode())


def garbled(line: bytes = b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n") -> Answer:
    """No HTTP, or hardly."""
    return Answer(raw=line, keep_alive=False)


class Gone(Exception):
    """The peer closed."""


class Peer:
    """One connection to this worker, read ahead by a task so that its closing is noticed at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.transport = writer.transport
        self.close_on_data = False  # it goes away as soon as something arrives, unread
        self._reader = reader
        self._buffer = bytearray()
        self._more = asyncio.Event()
        self._eof = asyncio.Event()
        self._pump = asyncio.create_task(self._read_ahead(), name="worker reads")
        if writer.get_extra_info("ssl_object") is None:  # beneath TLS an empty buffer is never told of
            self.transport.set_write_buffer_limits(0)

    async def _read_ahead(self) -> None:
        try:
            while data := await self._reader.read(MOST_BUFFERED):
                if self.close_on_data:
                    break
                self._buffer += data
                self._more.set()
        except OSError:
            pass
        self._eof.set()
        self._more.set()

    async def until(self, mark: bytes) -> bytes:
        while (at := self._buffer.find(mark)) < 0:
            await self._wait()
        return self.take(at + len(mark))

    async def exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            await self._wait()
        return self.take(count)

    def take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _wait(self) -> None:
        if self._eof.is_set():
            raise Gone
        self._more.clear()
        await self._more.wait()

    async def unless_gone(self, waiting: Any) -> None:
        """Wait for it, or raise Gone as soon as the peer closes."""
        task, eof = asyncio.ensure_future(waiting), asyncio.ensure_future(self._eof.wait())
        try:
            await asyncio.wait((task, eof), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Gone
            task.result()
        except OSError:
            raise Gone from None
        finally:
            for each in (task, eof):
                each.cancel()
            await asyncio.gather(task, eof, return_exceptions=True)

    async def write(self, data: bytes) -> None:
        try:
            self.writer.write(data)
        except RuntimeError:  # uvloop's word for a transport that is closed
            raise Gone from None
        await self.unless_gone(self.writer.drain())

    async def close(self, *, reset: bool = False) -> None:
        if reset and (sock := self.transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        self.writer.close()
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)


@dataclass
class Worker:
    """Answers POSTs by `answer`, scrapes by `metrics`, probes by itself, and counts.

    started, finished, aborted: generations, which are answers that are no refusal; aborted ones lost their peer
    """

    answer: Answer | Callable[[Seen], Answer] = field(default_factory=reply)
    metrics: bytes | Answer = b"# it says nothing of itself\n"
    models: Sequence[str] = ("m",)
    key: str | None = None  # asked for on every path
    healthy: int | float = 200  # the status of a probe; after `healthy_at` on the loop's clock
    healthy_at: float = 0.0
    probe_delay: float = 0.0
    idle_close: float | None = None  # seconds
    reads: bool = True  # False: it accepts and never reads
    tls: ssl.SSLContext | None = None  # it listens with
    host: str = "127.0.0.1"
    port: int = 0

    def __post_init__(self) -> None:
        self.requests: list[Seen] = []
        self.probes: list[Seen] = []
        self.scrapes: list[Seen] = []
        self.started = self.finished = self.aborted = self.sent = self.accepted = self.most_at_once = 0
        self.aborted_at: list[float] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._peers: set[Peer] = set()

    @property
    def id(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.id}"

    @property
    def running(self) -> int:
        return self.started - self.finished - self.aborted

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request in self.requests]

    async def listen(self) -> "Worker":
        """Listen, on the port it had if it had one."""
        self._server = await asyncio.start_server(self._serve, self.host, self.port, limit=MOST_BUFFERED, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def refuse(self, *, hang_up: bool = True) -> None:
        """Listen no more, as a process that ended; `hang_up`: its connections end too."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        if hang_up:
            await self.hang_up()

    async def hang_up(self, *, reset: bool = False) -> None:
        for peer in list(self._peers):
            await peer.close(reset=reset)

    async def close(self) -> None:
        await self.refuse()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def heal(self) -> None:
        """Everything as a good worker has it."""
        self.answer, self.healthy, self.healthy_at, self.probe_delay = reply(), 200, 0.0, 0.0
        self.reads, self.idle_close = True, None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("worker serves")
        self._tasks.add(task)
        self.accepted += 1
        peer = Peer(reader, writer)
        self._peers.add(peer)
        try:
            while await self._exchange(peer, self.accepted):
                pass
        except (Gone, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._peers.discard(peer)
            self._tasks.discard(task)
            await peer.close()

    async def _exchange(self, peer: Peer, connection: int) -> bool:
        if not self.reads:
            await peer.unless_gone(asyncio.Event().wait())
        async with asyncio.timeout(self.idle_close) as limit:
            try:
                head = await peer.until(b"\r\n\r\n")
            except TimeoutError:
                return False
            finally:
                limit.reschedule(None)
        seen = self._read_head(head, connection)
        length = int(seen.one("content-length") or 0)
        assert not seen.all("transfer-encoding"), "the gateway sends lengths"
        seen.body = await peer.exactly(length)
        if seen.method == "GET" and seen.target.endswith(b"/metrics"):
            return await self._scrape(peer, seen)
        if seen.method == "GET":
            return await self._probe(peer, seen)
        self.requests.append(seen)
        answer = self.answer(seen) if callable(self.answer) else self.answer
        if self.key is not None and seen.one("authorization") != f"Bearer {self.key}".encode():
            answer = reply(b'{"error": "no key"}', 401)
        return await self._generate(peer, answer)

    @staticmethod
    def _read_head(head: bytes, connection: int) -> Seen:
        first, *lines = head[:-4].split(b"\r\n")
        method, target, version = first.split(b" ")
        assert version == b"HTTP/1.1"
        pairs = [line.split(b":", 1) for line in lines]
        return Seen(method.decode(), target, [(name, value.strip()) for name, value in pairs], b"", connection)

    async def _scrape(self, peer: Peer, seen: Seen) -> bool:
        self.scrapes.append(seen)
        if isinstance(self.metrics, Answer):
            return await self._send(peer, self.metrics)
        if self.key is not None and seen.one("authorization") != f"Bearer {self.key}".encode():
            answer = reply(b"{}", 401)
        else:
            answer = Answer(headers=(("content-type", "text/plain"),), pieces=(self.metrics,))
        await peer.write(answer.head() + b"".join(each for each in answer.pieces if isinstance(each, bytes)))
        return True

    async def _probe(self, peer: Peer, seen: Seen) -> bool:
        self.probes.append(seen)
        await peer.unless_gone(asyncio.sleep(self.probe_delay))
        well = asyncio.get_running_loop().time() >= self.healthy_at
        status = int(self.healthy) if well else 503
        body = b"{}"
        if self.key is not None and seen.one("authorization") != f"Bearer {self.key}".encode():
            status = 401
        elif seen.target.endswith(b"/v1/models"):
            entries = [{"id": name, "object": "model", "max_model_len": 4096} for name in self.models]
            body = json.dumps({"object": "list", "data": entries}).encode()
        answer = reply(body, status)
        await peer.write(answer.head() + body)
        return True

    async def _generate(self, peer: Peer, answer: Answer) -> bool:
        counts = answer.generates
        self.started += counts
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            alive = await self._send(peer, answer)
        except (Gone, ConnectionError):
            self.aborted += counts
            self.aborted_at.append(asyncio.get_running_loop().time())
            raise
        except asyncio.CancelledError:
            self.aborted += counts
            raise
        self.finished += counts
        return alive

    async def _send(self, peer: Peer, answer: Answer) -> bool:
        await peer.unless_gone(asyncio.sleep(answer.delay))
        if answer.stop == -1:
            return await self._end(peer, answer)
        if answer.raw is not None:
            await peer.write(answer.raw)
            return answer.keep_alive
        await peer.write(answer.head())
        for at, piece in enumerate(answer.pieces):
            if answer.stop == at:
                return await self._end(peer, answer)
            if isinstance(piece, asyncio.Event):
                await peer.unless_gone(piece.wait())
                continue
            if answer.gap and at:
                await peer.unless_gone(asyncio.sleep(answer.gap))
            await peer.write(answer.framed(piece))
            self.sent += len(piece)
        if answer.stop is not None:
            return await self._end(peer, answer)
        if answer.framing == "chunked":
            await peer.write(b"0\r\n\r\n")
        return answer.keep_alive and answer.framing != "eof"

    @staticmethod
    async def _end(peer: Peer, answer: Answer) -> bool:
        if answer.ending == "hang":
            await peer.unless_gone(asyncio.Event().wait())
        if answer.ending == "reset":
            await asyncio.sleep(0.05)  # a reset overtakes what is still on the way
            await peer.close(reset=True)
        return False


def full_backlog() -> tuple[socket.socket, list[socket.socket], int]:
    """A port on which no connection comes about: its queue is full and nobody accepts. (listener, queue, port)"""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port = listener.getsockname()[1]
    waiting = []
    for _ in range(3):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", port))
        waiting.append(client)
    return listener, waiting, port
