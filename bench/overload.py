"""What a gateway still does when more is asked than its workers can take: half to three times their measured capacity.

Real mock workers and a real gateway, each a process; requests come at random moments, whatever became of those before.
Goodput counts answers whose wait kept `queue.wait_seconds`. An answer's wait is its time beyond what half of the
answers took with half the capacity asked, when nobody waits; what 99% of those took is no wait yet. Meanwhile
`/healthz` and `/admin/workers` are asked ten times a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

import httptools
import uvloop

WORKERS, SLOTS, TOKENS = 2, 8, 20  # SLOTS requests at once at a worker; TOKENS an answer: a third of a second
WAIT_SECONDS, LOOK = 1.5, 0.1  # the gateway looks ten times a second who has waited too long
LOADS = (0.5, 1.0, 1.5, 2.0, 3.0)  # times the capacity
SETTLE = WAIT_SECONDS + 1.0  # until the waiting room is as full as it becomes
LEAST_SHARE, MOST_ANSWER = 0.95, 0.25  # of the peak's goodput at twice the capacity; seconds for health and admin
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-length: %d\r\n\r\n"


Usual = tuple[float, float]  # seconds that an answer takes when nobody waits: the median, and for 99%


class Connection(asyncio.Protocol):
    """One exchange at a time."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[int] | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        answer, self.answer = self.answer, None
        if answer is not None and not answer.done():
            answer.set_result(self.parser.get_status_code())

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(0)


class Client:
    def __init__(self, port: int) -> None:
        self.port = port
        self._idle: list[Connection] = []

    async def ask(self, request: bytes) -> tuple[int, float]:
        """The status, 0 for a broken connection, and the seconds it took."""
        began = time.perf_counter()
        connection = self._idle.pop() if self._idle else None
        if connection is None or connection.closed:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(Connection, "127.0.0.1", self.port)
        connection.answer = waited = asyncio.get_running_loop().create_future()
        connection.transport.write(request)
        status = await waited
        if not connection.closed:
            self._idle.append(connection)
        return status, time.perf_counter() - began

    def close(self) -> None:
        for connection in self._idle:
            connection.transport.close()


def chat(at: int) -> bytes:
    turns = [{"role": "user", "content": f"{at} is the number of this question. " * 8}]
    body = json.dumps({"model": "mock-model", "messages": turns, "max_tokens": TOKENS, "ignore_eos": True}).encode()
    return HEAD % len(body) + body


async def capacity(client: Client, seconds: float) -> float:
    """Answers a second while every worker is always full."""
    done: list[float] = []
    began = time.perf_counter()
    end = began + seconds

    async def keep_asking(first: int) -> None:
        at = first
        while time.perf_counter() < end:
            status, _ = await client.ask(chat(at))
            if status == 200:
                done.append(time.perf_counter())
            at += 1000

    await asyncio.gather(*[keep_asking(at) for at in range(WORKERS * SLOTS * 3 // 2)])
    steady = began + 1.0
    return sum(steady <= at < end for at in done) / (end - steady)


async def offered(client: Client, a_second: float, seconds: float, seed: int) -> list[tuple[float, int, float]]:
    """Requests at random moments; of each its end since the begin, its status and its time."""
    dice, began, at = Random(seed), time.perf_counter(), 0.0
    out: list[tuple[float, int, float]] = []
    running: set[asyncio.Task[None]] = set()

    async def one(number: int) -> None:
        status, took = await client.ask(chat(number))
        out.append((time.perf_counter() - began, status, took))

    number = seed * 1_000_000
    while (at := at + dice.expovariate(a_second)) < seconds:
        await asyncio.sleep(max(0.0, began + at - time.perf_counter()))
        number += 1
        task = asyncio.create_task(one(number))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    return out


async def watched(client: Client, path: str, worst: dict[str, float]) -> None:
    request = f"GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n".encode()
    while True:
        status, took = await client.ask(request)
        worst[path] = max(worst.get(path, 0.0), took if status == 200 else float("inf"))
        await asyncio.sleep(0.1)


async def measured(
    port: int, load: float, rate: float, seconds: float, service: tuple[float, float] | None
) -> dict[str, Any]:
    client, watching, worst = Client(port), Client(port), {}
    watchers = [asyncio.create_task(watched(watching, path, worst)) for path in ("/healthz", "/admin/workers")]
    try:
        seen = await offered(client, load * rate, SETTLE + seconds, round(load * 10))
    finally:
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        client.close()
        watching.close()
    inside = [(status, took) for at, status, took in seen if SETTLE <= at < SETTLE + seconds]
    took = sorted(took for status, took in inside if status == 200)
    alone, jitter = (took[len(took) // 2], took[int(len(took) * 0.99)]) if service is None else service
    waits = [max(0.0, each - alone) for each in took]
    in_time = sum(each <= WAIT_SECONDS + LOOK + jitter for each in took)
    return {
        "load": load,
        "offered": load * rate,
        "goodput": in_time / seconds,
        "answers_in_time": in_time / max(1, len(took)),
        "wait_p50": waits[len(waits) // 2],
        "wait_p99": waits[int(len(waits) * 0.99)],
        "refused": sum(status == 429 for status, _ in inside) / max(1, len(inside)),
        "errors": sum(status not in (200, 429) for status, _ in inside),
        "healthz_worst": worst.get("/healthz", float("inf")),
        "admin_worst": worst.get("/admin/workers", float("inf")),
        "service": (alone, jitter),
    }


@contextmanager
def process(*arguments: str, **env: str) -> Iterator[int]:
    """The port that it prints."""
    with subprocess.Popen(
        [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, **env},
    ) as running:  # fmt: skip
        try:
            assert running.stdout is not None
            yield int(running.stdout.readline().rsplit(":", 1)[1])
        finally:
            running.kill()


async def measure(seconds: float, loads: tuple[float, ...]) -> dict[str, Any]:
    flags = ["--max-running", str(SLOTS), "--prefill-tokens-per-second", "20000"]
    with ExitStack() as stack:
        ports = [stack.enter_context(process("backends", "mock", "--port", "0", *flags)) for _ in range(WORKERS)]
        named = [flag for port in ports for flag in ("--worker", f"http://127.0.0.1:{port}")]
        port = stack.enter_context(
            process(
                "router", "serve", "--port", "0", *named,
                PREFIX_ROUTER_LIMITS__WORKER_IN_FLIGHT=str(SLOTS),
                PREFIX_ROUTER_QUEUE__WAIT_SECONDS=str(WAIT_SECONDS),
                PREFIX_ROUTER_LOG__ACCESS="none",
            )
        )  # fmt: skip
        await until_ready(port)
        client = Client(port)
        rate = await capacity(client, 5.0)
        client.close()
        rows: list[dict[str, Any]] = []
        for load in (LOADS[0], *(load for load in loads if load != LOADS[0])):
            print(f"{load:g} times {rate:.1f} requests a second", file=sys.stderr, flush=True)
            rows.append(await measured(port, load, rate, seconds, rows[0]["service"] if rows else None))
    return judged({"capacity": rate, "wait_seconds": WAIT_SECONDS, "loads": rows})


def judged(found: dict[str, Any]) -> dict[str, Any]:
    rows = found["loads"]
    peak = max(row["goodput"] for row in rows)
    for row in rows:
        row["share_of_peak"] = row["goodput"] / peak
    twice = [row for row in rows if row["load"] == 2.0]
    found["holds"] = {
        "goodput": all(row["share_of_peak"] >= LEAST_SHARE for row in twice),
        "wait_limit": all(row["answers_in_time"] >= 0.99 and not row["errors"] for row in rows),
        "health_and_admin": all(max(row["healthz_worst"], row["admin_worst"]) <= MOST_ANSWER for row in rows),
    }
    return found


async def until_ready(port: int) -> None:
    client = Client(port)
    for _ in range(200):
        status, _ = await client.ask(b"GET /readyz HTTP/1.1\r\nhost: bench\r\n\r\n")
        if status == 200:
            await asyncio.sleep(1.0)  # until all of them are
            client.close()
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("the gateway found no worker ready")


def table(found: dict[str, Any]) -> str:
    lines = [f"capacity {found['capacity']:.1f} requests a second, queue.wait_seconds {found['wait_seconds']:g}", ""]
    lines.append("  load  offered/s  goodput/s  of peak  wait p50  wait p99  refused  errors  healthz  admin (worst)")
    lines += [
        f"{row['load']:5.1f}x {row['offered']:10.1f} {row['goodput']:10.1f} {row['share_of_peak']:8.1%}"
        f" {row['wait_p50']:7.2f} s {row['wait_p99']:7.2f} s {row['refused']:8.1%} {row['errors']:7d}"
        f" {row['healthz_worst'] * 1e3:5.0f} ms {row['admin_worst'] * 1e3:6.0f} ms"
        for row in found["loads"]
    ]
    said = ", ".join(
        f"{name.replace('_', ' ')} {'holds' if well else 'BROKEN'}" for name, well in found["holds"].items()
    )
    return "\n".join([*lines, "", said])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=7.0, help="measured at each load (7)")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, help="times the capacity")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = uvloop.run(measure(asked.seconds, tuple(asked.loads)))
    print(json.dumps(found, indent=2) if asked.json else table(found))
    return 0 if all(found["holds"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
