"""What a gateway's memory comes to: many prompts of their own behind a shared beginning, many names of models, many
workers that come and go, and at last none. Whole journeys through the real wiring, but for the sockets.

    python bench/growth.py [--prompts 200000] [--models 1000] [--workers 200] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from router.core.health import PROBE_OK
from router.layers import load
from router.types import worker_from_url
from router.wiring import Gateway

CHAT = "/v1/chat/completions"
SYSTEM = "You are the assistant of a company that sells garden tools. " * 30
JSON = [(b"content-type", b"application/json")]
USAGE = b'{"usage": {"prompt_tokens": 900, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 400}}}'
SAMPLES = 10


def resident_megabytes() -> float:
    """Now, not at most."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class Deaf:
    """A sink for answers that nobody reads."""

    peer = "192.0.2.1"

    def head(self, status: int, headers: Any, length: int | None) -> None: ...
    def body(self, data: bytes) -> None: ...
    def flush(self) -> None: ...
    def end(self) -> None: ...
    def abort(self) -> None: ...


class Line:
    """A connection that is open and carries nothing."""

    is_open = True

    def cancel(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class InstantPool:
    """Notes who is to be answered."""

    base_path, greeting, has_credentials = b"", b" HTTP/1.1\r\nhost: w\r\n", False

    def __init__(self) -> None:
        self.receivers: list[Any] = []

    def send(self, head: bytes, body: bytes, receiver: Any, now: float, *, fresh: bool = False) -> Line:
        self.receivers.append(receiver)
        return Line()


class Bench:
    def __init__(self, table_hashes: int | None) -> None:
        settings: dict[str, Any] = {"log": {"access": "none"}}
        if table_hashes:
            settings["routing"] = {"table_hashes": table_hashes}
        self.gateway = Gateway(*load([("bench", settings)], {}))
        self.house = self.gateway.house
        self.pool = InstantPool()
        self.house.pool = lambda seat: self.pool  # type: ignore[method-assign, assignment, return-value]
        self.rows: list[dict[str, Any]] = []

    def workers(self, *names: str, **fields: Any) -> None:
        self.house.reconcile([worker_from_url(f"http://{name}:8000", id=name, **fields) for name in names])
        for seat in self.house.fleet.seats.values():
            self.house.signal(seat, PROBE_OK)

    def ask(self, said: str, model: str = "m", *, leaves: bool = False) -> None:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": said}]
        journey = self.house.open(self.house.paths[CHAT.encode()], CHAT.encode(), [], Deaf())
        journey.begin([])
        journey.feed(json.dumps({"model": model, "messages": messages}).encode())
        journey.complete()
        if self.pool.receivers:
            receiver = self.pool.receivers.pop()
            if leaves:
                journey.cancel()
            else:
                receiver.on_head(200, JSON, len(USAGE))
                receiver.on_body([USAGE])
                receiver.on_end()

    def look(self, after: str) -> None:
        gc.collect()
        scrape = self.gateway.metrics.scrape()
        series = sum(1 for line in scrape.splitlines() if line and not line.startswith(b"#"))
        hashes = len(self.house.mind.holders)
        row = {"after": after, "megabytes": round(resident_megabytes(), 1), "series": series, "hashes": hashes}
        self.rows.append(row)


async def run(prompts: int, models: int, workers: int, table_hashes: int | None) -> list[dict[str, Any]]:
    bench, dice = Bench(table_hashes), Random(1)
    stay = [f"stays-{at}" for at in range(8)]
    bench.workers(*stay, models=("m",))
    bench.look("the start")
    for at in range(1, prompts + 1):
        bench.ask(f"{dice.randrange(10**15)} " * 60, leaves=at % 10 == 0)
        if not at % max(1, prompts // SAMPLES):
            bench.look(f"{at:,} prompts")
            await asyncio.sleep(0)
    for at in range(models):
        bench.ask("Hello", f"model-{at}")
    bench.look(f"{models:,} names of models")
    for at in range(workers):
        bench.workers(*stay, f"goes-{at}", models=("m",))
        bench.ask(f"{dice.randrange(10**15)} " * 60)
    bench.workers(*stay, models=("m",))
    bench.look(f"{workers:,} workers came and went")
    bench.workers()
    bench.look("the last worker left")
    return bench.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--prompts", type=int, default=200_000)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--table-hashes", type=int, help="routing.table_hashes")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = asyncio.run(run(given.prompts, given.models, given.workers, given.table_hashes))
    if given.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['after']:>28}: {row['megabytes']:7.1f} MB resident, {row['series']:5,} series, "
              f"{row['hashes']:8,} hashes")  # fmt: skip


if __name__ == "__main__":
    main()
