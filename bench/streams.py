"""Many streams at once through one gateway process that may open no more descriptors than they need, and long prompts,
each with the worst answer of /healthz meanwhile."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import upstream
from bench.cpu import free_port

OVERHEAD = 40  # descriptors beside two a stream: the listener, the loop's own, probes, the looks at /healthz
EVENTS, PACE = 16, 0.25
LOOK_SECONDS = 0.1
PATIENCE = 120.0
LONG_BYTES, LONG_AT_ONCE = 2_000_000, 30
DONE = b"data: [DONE]\n\n"


# The worker, in a process of its own.


class Together(upstream.Worker):
    """Streams begin when so many are there, so that all of them are open at one time."""

    count = 0
    there: list[Together] = []  # noqa: RUF012 - of all connections together

    def step(self, left: int) -> None:
        if left == upstream.EVENTS:  # the parent's own beginning
            self.there.append(self)
            if len(self.there) >= self.count:
                begin, self.there[:] = list(self.there), []
                for at, each in enumerate(begin):
                    each.loop.call_later(PACE * at / len(begin), each.paced, EVENTS)

    def paced(self, left: int) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(upstream.CHUNK if left else upstream.LAST)
        if left:
            self.loop.call_later(PACE, self.paced, left - 1)


async def work(port: int, count: int) -> None:
    Together.count = count
    server = await asyncio.get_running_loop().create_server(Together, "127.0.0.1", port, backlog=4096)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.serve_forever()


# The gateway and the client.


def body(size: int, *, stream: bool) -> bytes:
    start = b'{"model":"m","messages":[{"role":"user","content":"' + b"a" * size + b'"}]'
    return start + (b',"stream":true}' if stream else b"}")


async def ask(port: int, request: bytes) -> tuple[int, bytes]:
    """Status, and the body without its framing; cut where the connection ends before the answer does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if b"transfer-encoding: chunked" not in head:
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            return status, await reader.readexactly(length)
        pieces = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            pieces.append((await reader.readexactly(size + 2))[:-2])
        await reader.readexactly(2)
        return status, b"".join(pieces)
    finally:
        writer.close()


def post(data: bytes) -> bytes:
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    )
    return head % len(data) + data


HEALTH = b"GET /healthz HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n"


def open_files(pid: int) -> int:
    """Where there is /proc; else 0."""
    held = Path(f"/proc/{pid}/fd")
    return len(list(held.iterdir())) if held.is_dir() else 0


class Looks:
    """Asks for /healthz over and over, on a connection of its own each time."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid
        self.delays: list[float] = []
        self.descriptors = self.failed = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(10):
                    status, _ = await ask(self.port, HEALTH)
                self.failed += status != 200
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                self.failed += 1
            self.delays.append(time.monotonic() - began)
            self.descriptors = max(self.descriptors, open_files(self.pid))
            await asyncio.sleep(LOOK_SECONDS)

    async def end(self) -> dict[str, Any]:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        ordered = sorted(self.delays) or [0.0]
        return {
            "looks": len(self.delays), "failed_looks": self.failed, "worst_look_ms": round(ordered[-1] * 1e3, 1),
            "median_look_ms": round(ordered[len(ordered) // 2] * 1e3, 1), "descriptors": self.descriptors,
        }  # fmt: skip


async def all_of(asking: list[Awaitable[tuple[int, bytes]]]) -> list[tuple[int, bytes]]:
    """Every answer; one that broke is status 0."""

    async def one(each: Awaitable[tuple[int, bytes]]) -> tuple[int, bytes]:
        try:
            return await asyncio.wait_for(each, PATIENCE)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            return 0, b""

    return await asyncio.gather(*map(one, asking))


async def streams(port: int, pid: int, count: int) -> dict[str, Any]:
    """So many streams, all of them open at one time; what came of them."""
    looks = Looks(port, pid)
    began = time.monotonic()
    answers = await all_of([ask(port, post(body(2000, stream=True))) for _ in range(count)])
    whole = sum(
        status == 200 and data.endswith(DONE) and data.count(b"data: ") == EVENTS + 1 for status, data in answers
    )
    statuses = sorted({status for status, _ in answers})
    return {
        "streams": count, "whole": whole, "statuses": statuses, "seconds": round(time.monotonic() - began, 2),
        **await looks.end(),
    }  # fmt: skip


async def long_prompts(port: int, pid: int, count: int, seconds: float) -> dict[str, Any]:
    """So many requests of 2 MB at a time, over and over."""
    looks = Looks(port, pid)
    request = post(body(LONG_BYTES, stream=False))
    began, statuses, asked = time.monotonic(), set(), 0
    while time.monotonic() - began < seconds:
        answers = await all_of([ask(port, request) for _ in range(count)])
        statuses |= {status for status, _ in answers}
        asked += count
    passed = time.monotonic() - began
    return {
        "at_once": count, "bytes": LONG_BYTES, "requests": asked, "statuses": sorted(statuses),
        "requests_a_second": round(asked / passed, 1), **await looks.end(),
    }  # fmt: skip


@contextmanager
def running(count: int, descriptors: int) -> Iterator[tuple[int, int]]:
    """A worker and a gateway that may open so many descriptors: the gateway's port and process."""
    own = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (own[1], own[1]))  # client and worker need some too
    port, back = free_port(), free_port()
    worker = subprocess.Popen(
        [sys.executable, __file__, "--worker", str(back), "--streams", str(count)], stdout=subprocess.PIPE, text=True
    )
    command = [sys.executable, "-m", "router", "serve", "--port", str(port), "--worker", f"http://127.0.0.1:{back}"]
    gateway = subprocess.Popen(
        ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh", *command],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    try:
        for process in (worker, gateway):
            assert process.stdout is not None
            assert process.stdout.readline(), "it did not start"
        yield port, gateway.pid
        assert gateway.poll() is None, "the gateway ended"
    finally:
        for process in (gateway, worker):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, own)


async def ready(port: int) -> None:
    for _ in range(200):
        if (await ask(port, HEALTH.replace(b"/healthz", b"/readyz")))[0] == 200:
            return
        await asyncio.sleep(0.05)
    raise RuntimeError("the worker was never ready")


async def measure(port: int, pid: int, count: int, seconds: float) -> dict[str, dict[str, Any]]:
    await ready(port)
    return {
        "streams": await streams(port, pid, count),
        "long prompts": await long_prompts(port, pid, LONG_AT_ONCE, seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000, help="at once (1000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of long prompts (10)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker is not None:
        uvloop.run(work(asked.worker, asked.streams))
        return
    limit = 2 * asked.streams + OVERHEAD
    with running(asked.streams, limit) as (port, pid):
        rows = uvloop.run(measure(port, pid, asked.streams, asked.seconds))
    rows["streams"]["limit"] = limit
    if asked.json:
        print(json.dumps(rows, indent=2))
        return
    first, second = rows["streams"], rows["long prompts"]
    print(f"{first['whole']} of {first['streams']} streams whole in {first['seconds']} s, all open at one time; "
          f"{first['descriptors']} descriptors of {limit}")  # fmt: skip
    print(f"  /healthz meanwhile: {first['median_look_ms']} ms, at worst {first['worst_look_ms']} ms")
    print(f"{second['requests']} requests of {LONG_BYTES // 1_000_000} MB, {second['at_once']} at a time, "
          f"{second['requests_a_second']} a second")  # fmt: skip
    print(f"  /healthz meanwhile: {second['median_look_ms']} ms, at worst {second['worst_look_ms']} ms")


if __name__ == "__main__":
    main()
