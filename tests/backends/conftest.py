"""Tools for the workers' tests: fake time, a mock worker in this process's loop, a real one in its own process."""

import asyncio
import heapq
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.cli import build_parser
from backends.mock.assembly import MockWorker
from backends.mock.command import plan_of
from backends.mock.engine import MockEngine, Shape, Time
from backends.mock.timing import CostModel
from backends.prefix_cache import PrefixCache

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0


class FakeTime:
    """Time that passes only when told to; timers ring in order, each at its own moment."""

    def __init__(self) -> None:
        self.moment = 0.0
        self._timers: list[tuple[float, int, Callable[[], None], list[bool]]] = []
        self._count = 0

    def now(self) -> float:
        return self.moment

    def later(self, delay: float, callback: Callable[[], None]) -> Any:
        alive = [True]
        self._count += 1
        heapq.heappush(self._timers, (self.moment + delay, self._count, callback, alive))

        class Timer:
            def cancel(self) -> None:
                alive[0] = False

        return Timer()

    def pass_to(self, moment: float) -> None:
        while self._timers and self._timers[0][0] <= moment:
            when, _, callback, alive = heapq.heappop(self._timers)
            self.moment = max(self.moment, when)
            if alive[0]:
                callback()
        self.moment = max(self.moment, moment)


class Listener:
    """A sink that writes down what it hears."""

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self._now = now
        self.heard, self.times, self.pieces, self.logprobs = [], [], [], []
        self.usage = self.end = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def prefilled(self, usage: Any) -> None:
        self.heard.append("prefilled")
        self.usage = usage

    def tokens(self, pieces: Any, logprobs: Any = None) -> None:
        self.heard.append("tokens")
        self.pieces.extend(pieces)
        self.logprobs.extend(logprobs or ())
        self.times.extend([self._now()] * len(pieces))

    def finished(self, end: Any) -> None:
        self.heard.append("finished")
        self.end = end

    def failed(self) -> None:
        self.heard.append("failed")


class Inspected:
    """A mock worker that listens in this test's loop, and ways to talk to it."""

    def __init__(self, worker: MockWorker) -> None:
        self.worker = worker
        self.engine = worker.engine
        self.server = worker.server
        self.ledger = worker.face.ledger
        self.url = worker.server.address
        self.port = worker.server.port
        self.http = httpx.AsyncClient(base_url=self.url, timeout=PATIENCE, trust_env=False)

    async def ask(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return await self.http.post(path, json=body, **more)

    async def chat(self, text: str = "Hello", **fields: Any) -> httpx.Response:
        return await self.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **fields})

    async def set_faults(self, rules: Any) -> None:
        assert (await self.ask("/faults", rules)).status_code == 200

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def raw(self, data: bytes) -> bytes:
        """Everything that comes back for these bytes until the server closes."""
        reader, writer = await self.connect()
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), PATIENCE)
        finally:
            writer.close()

    async def stats(self) -> dict[str, Any]:
        return (await self.http.get("/stats")).json()


Mock = Callable[..., Awaitable[Inspected]]


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def listener(fake_time: FakeTime) -> Callable[[], Listener]:
    return lambda: Listener(fake_time.now)


@pytest.fixture
def engine_of(fake_time: FakeTime) -> Callable[..., MockEngine]:
    """Builds a mock engine on fake time: 100 prefill tokens and 10 decoded ones a second, unless said otherwise."""

    def build(blocks: int = 1000, block_tokens: int = 4, scale: float = 1.0, **shape: Any) -> MockEngine:
        cost = CostModel(prefill_tokens_per_second=100, decode_tokens_per_second=10, time_scale=scale)
        cache = PrefixCache(blocks, block_tokens)
        return MockEngine(Shape(cost=cost, **shape), cache, Time(fake_time.now, fake_time.later))

    return build


@pytest.fixture
async def mock() -> AsyncIterator[Mock]:
    """Starts mock workers by their command line's flags, on a free port; quick unless told otherwise."""
    started: list[Inspected] = []

    async def start(*flags: str) -> Inspected:
        complaints: list[str] = []
        found = build_parser(complaints).parse_args(["mock", "--port", "0", "--time-scale", "0.01", *flags])
        assert not complaints
        worker = MockWorker(plan_of(found))
        for server in worker.servers:
            await server.listen()
        worker.control.apply()
        inspected = Inspected(worker)
        started.append(inspected)
        return inspected

    yield start
    for one in started:
        await one.http.aclose()
        one.worker.close()
    await asyncio.sleep(0)  # transports close in the next turn


class Process:
    """A worker in a process of its own."""

    def __init__(self, flags: tuple[str, ...]) -> None:
        command = [sys.executable, "-m", "backends", "mock", "--port", "0", "--time-scale", "0.01", *flags]
        self.popen = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "default"},
        )
        assert self.popen.stdout is not None
        self.line = self.popen.stdout.readline()
        self.url = self.line.split()[-1] if self.line else ""
        self.port = int(self.url.rpartition(":")[2]) if self.url else 0

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Exit status and what was written after the first line."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        out, err = self.popen.communicate(timeout=PATIENCE)
        return self.popen.returncode, out, err


@pytest.fixture
def process() -> Iterator[Callable[..., Process]]:
    running: list[Process] = []

    def start(*flags: str) -> Process:
        running.append(Process(flags))
        return running[-1]

    yield start
    for one in running:
        one.end(signal.SIGKILL)


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], Awaitable[None]]:
    """Waits, with patience, until something holds: for what another side of a socket must first notice."""

    async def wait(holds: Callable[[], Any]) -> None:
        for _ in range(int(PATIENCE / 0.01)):
            if holds():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came true")

    return wait


@pytest.fixture
def post() -> Callable[..., bytes]:
    """A POST request's bytes."""

    def build(path: str, body: Any, *headers: str, version: str = "1.1", close: bool = True) -> bytes:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"POST {path} HTTP/{version}", "host: worker", f"content-length: {len(data)}", *headers]
        if close and version == "1.1":
            lines.append("connection: close")
        return "\r\n".join([*lines, "", ""]).encode() + data

    return build


@pytest.fixture
def events_of() -> Callable[[str], list[Any]]:
    """The values of a stream's data lines; `[DONE]` stays text."""

    def read(text: str) -> list[Any]:
        lines = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines if line]

    return read
