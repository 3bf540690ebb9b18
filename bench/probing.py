"""What watching the workers costs while nobody asks: probes of their health, looks at their queues, by fleet size."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import upstream
from bench.cpu import cpu_seconds, free_port
from bench.idle import enough_descriptors, rss

READY_SECONDS, SETTLE_SECONDS = 60.0, 3.0
LINE = 'vllm:some_histogram_seconds_bucket{model_name="m",engine="0",le="%d.5"} %d.0\n'
METRICS = 'vllm:num_requests_running{model_name="m"} 0.0\nvllm:num_requests_waiting{model_name="m"} 0.0\n'
FORMS = {
    "health alone (the only gateway)": {},
    "and queues each second": {"ROUTING__REPLICAS": "2", "SIGNALS__QUEUE_SECONDS": "1"},
    "and queues ten times a second": {"ROUTING__REPLICAS": "2", "SIGNALS__QUEUE_SECONDS": "0.1"},
}


class Engine(upstream.Worker):
    """Its metrics are as long as real ones."""

    metrics = b""

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_message_complete(self) -> None:
        if self.url.startswith(b"/metrics"):
            self.transport.write(self.metrics)
        else:
            super().on_message_complete()


async def work(ports: list[int], kilobytes: int) -> None:
    text = METRICS + "".join(LINE % (at, at) for at in range(kilobytes * 1000 // len(LINE)))
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {len(text)}\r\n\r\n"
    Engine.metrics = (head + text).encode()
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Engine, "127.0.0.1", port) for port in ports]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.gather(*(server.serve_forever() for server in servers))


def free_ports(count: int) -> list[int]:
    """All different: each is held until all are found."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]
    finally:
        for each in held:
            each.close()


def ready(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return int(json.load(answer)["workers_ready"])
    except OSError:
        return 0


def measure(ports: list[int], form: dict[str, str], seconds: float) -> dict[str, float]:
    """One gateway in front of these workers, for a while."""
    port = free_port()
    flags = [f"--worker=http://127.0.0.1:{each}" for each in ports]
    given = {f"PREFIX_ROUTER_{name}": value for name, value in form.items()}
    began = time.monotonic()
    gateway = subprocess.Popen(
        [sys.executable, "-m", "router", "serve", "--port", str(port), *flags], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, cwd=Path(__file__).parents[1], env={**os.environ, **given},
    )  # fmt: skip
    try:
        assert gateway.stdout is not None
        assert gateway.stdout.readline(), "the gateway did not start"
        while ready(port) < len(ports):
            if time.monotonic() - began > READY_SECONDS:
                raise RuntimeError(f"{ready(port)} of {len(ports)} workers were ready after {READY_SECONDS:.0f} s")
            time.sleep(0.1)
        took = time.monotonic() - began
        time.sleep(SETTLE_SECONDS)
        used, began = cpu_seconds(gateway.pid), time.monotonic()
        time.sleep(seconds)
        percent = (cpu_seconds(gateway.pid) - used) / (time.monotonic() - began) * 100
        return {"cpu_percent": round(percent, 1), "rss_mb": round(rss(gateway.pid) / 1e6, 1), "ready_s": round(took, 1)}
    finally:
        gateway.kill()
        gateway.wait()
        assert gateway.stdout is not None
        gateway.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="10,100,1000", help="fleets (10,100,1000)")
    parser.add_argument("--metrics-kb", type=int, default=32, help="of one look at a worker's metrics (32)")
    parser.add_argument("--seconds", type=float, default=5.0, help="a measurement (5)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--engines", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.engines:
        uvloop.run(work(json.loads(asked.engines), asked.metrics_kb))
        return
    sizes = [int(each) for each in asked.workers.split(",")]
    enough_descriptors(3 * max(sizes))
    ports = free_ports(max(sizes))
    engines = subprocess.Popen(
        [sys.executable, __file__, "--engines", json.dumps(ports), "--metrics-kb", str(asked.metrics_kb)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    rows: dict[str, dict[str, Any]] = {}
    try:
        assert engines.stdout is not None
        assert engines.stdout.readline(), "the workers did not start"
        for size in sizes:
            rows[str(size)] = {}
            for name, form in FORMS.items():
                print(f"{size} workers: {name}", file=sys.stderr, flush=True)
                rows[str(size)][name] = measure(ports[:size], form, asked.seconds)
    finally:
        engines.kill()
        engines.wait()
        if engines.stdout is not None:
            engines.stdout.close()
    if asked.json:
        print(json.dumps(rows, indent=2))
        return
    for count, row in rows.items():
        print(f"{count} workers, {asked.metrics_kb} KB of metrics each")
        for name, seen in row.items():
            print(f"  {name:34}{seen['cpu_percent']:6.1f} % of a core{seen['rss_mb']:8.1f} MB, "
                  f"all ready after {seen['ready_s']:.1f} s")  # fmt: skip


if __name__ == "__main__":
    main()
