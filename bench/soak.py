"""The soak: mixed load on four mock workers and a gateway of two processes, while things go wrong. `make soak`.

Workers are killed, frozen, slowed, drained, restarted; the settings are reloaded, a worker joins and leaves, and one of
the gateway's processes is killed. Every answer is read and judged. It ends with 1 on any fault: an answer that is lost
or wrong, a refusal, a lease that is not given back, memory that grew, a health answer that took too long.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import uvloop

from bench.soak_client import Outcome
from bench.soak_fleet import Fleet, resident_bytes
from bench.soak_load import Load, Request
from bench.soak_trouble import AFTERMATH, Trouble

LEAST_RATE, MOST_MEMORY, MOST_HEALTH = 300.0, 1.1, 0.25  # requests a second, times that after warm-up, seconds
WARM_UP = 0.4  # of the time, in which the tables fill and a process is killed
USERS = 96
SHOWN = 20  # faults that are told in full


class Soak:
    def __init__(self, fleet: Fleet, seconds: float, rate: float) -> None:
        self._fleet, self._seconds = fleet, seconds
        self._trouble = Trouble(fleet, gap=max(1.0, min(4.0, seconds / 60)))
        self._load = Load(fleet.gateway_port, fleet.reference_port, rate, USERS, self._told)
        self._cut: list[tuple[Request, Outcome]] = []
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.faults: list[str] = []
        self.slowest: dict[str, float] = {"/healthz": 0.0, "/admin/workers": 0.0}
        self.memory: list[int] = []

    async def run(self) -> dict[str, Any]:
        began = time.monotonic()
        self._began, self._until = began, began + self._seconds
        load = asyncio.create_task(self._load.run())
        trouble = asyncio.create_task(self._trouble.run(process_at=began + self._seconds * WARM_UP / 2))
        watching = [asyncio.create_task(self._watch(path)) for path in self.slowest]
        telling = asyncio.create_task(self._tell())
        await self._sleep_until(began + self._seconds * WARM_UP)
        self.memory.append(await self._resident())
        await self._sleep_until(self._until)
        for task in (trouble, *watching, telling):
            task.cancel()
        for found in await asyncio.gather(trouble, *watching, telling, return_exceptions=True):
            if isinstance(found, Exception):
                self.faults.append(f"the soak itself failed: {type(found).__name__} {found}")
        seconds, answered = time.monotonic() - began, self.counts["requests"]
        self._load.going = False
        await load
        self._judge_cuts()
        self.memory.append(await self._resident())
        return self._report(seconds, answered / seconds, await self._leases())

    async def _sleep_until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - time.monotonic()))

    # What came of the requests.

    def _told(self, request: Request, outcome: Outcome, fault: str) -> None:
        self.counts["requests"] += 1
        self.kinds[request.kind] += 1
        if fault:
            self.counts["wrong"] += 1
            self._fault(f"wrong: {request.kind}: {fault} (from {outcome.worker})")
        elif outcome.whole and outcome.status == 200:
            self.counts["answered"] += 1
        elif outcome.left:
            self.counts["left"] += 1
        elif outcome.silent:
            self.counts["lost"] += 1
            self._fault(f"lost: {request.kind}: a minute without a byte (status {outcome.status})")
        else:
            self._cut.append((request, outcome))  # judged once all deaths are known

    def _judge_cuts(self) -> None:
        for request, outcome in self._cut:
            killed = self._died(outcome.worker, outcome)
            if outcome.whole and outcome.status == 502 and killed:
                self.counts["told that their worker died"] += 1
            elif outcome.status == 200 and request.stream and killed:
                self.counts["streams cut with their worker"] += 1
            elif not outcome.whole and self._died("gateway", outcome):
                self.counts["cut with a process of the gateway"] += 1
            else:
                self.counts["refused" if outcome.whole else "lost"] += 1
                said = bytes(outcome.body[:120]).decode("utf-8", "replace") if outcome.status != 200 else ""
                ran = f"{outcome.began - self._began:.1f} s to {outcome.ended - self._began:.1f} s"
                self._fault(f"{request.kind}: status {outcome.status} from {outcome.worker or 'nobody'}, {ran}: {said}")

    def _died(self, who: str, outcome: Outcome) -> bool:
        return any(
            name == who and outcome.began - AFTERMATH <= at <= outcome.ended for at, name in self._trouble.deaths
        )

    def _fault(self, text: str) -> None:
        self.faults.append(text)

    # What is watched meanwhile.

    async def _watch(self, path: str) -> None:
        """On fresh connections, so that every process is asked. A killed process refuses nobody for long."""
        while True:
            began = time.monotonic()
            with contextlib.suppress(httpx.TransportError):
                async with httpx.AsyncClient(
                    base_url=self._fleet.url, timeout=10, trust_env=False, verify=False
                ) as client:
                    began = time.monotonic()
                    status = (await client.get(path)).status_code
                    if status != 200:
                        self._fault(f"{path} answered {status}")
            near = any(who == "gateway" and began - 2 <= at <= began + 2 for at, who in self._trouble.deaths)
            if not near:
                self.slowest[path] = max(self.slowest[path], time.monotonic() - began)
            await asyncio.sleep(0.1)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(10)
            passed = time.monotonic() - self._began
            found = f"{len(self.faults)} faults" if self.faults else "no fault"
            sys.stderr.write(
                f"{passed:4.0f} s of {self._seconds:.0f}: {self.counts['requests']} requests "
                f"({self.counts['requests'] / passed:.0f} a second), {found}\n"
            )

    async def _resident(self) -> int:
        async with httpx.AsyncClient(base_url=self._fleet.url, trust_env=False, verify=False) as client:
            rows = (await client.get("/admin/processes")).json()["processes"]
        return sum(map(resident_bytes, [self._fleet.gateway.pid, *(row["pid"] for row in rows)]))

    async def _leases(self) -> float:
        """What is in flight, charged or waiting a few seconds after the last request."""
        async with httpx.AsyncClient(base_url=self._fleet.url, trust_env=False, verify=False) as client:
            for _ in range(50):
                rows = (await client.get("/admin/workers")).json()["workers"]
                text = (await client.get("/metrics")).text
                queued = sum(
                    float(line.split()[-1]) for line in text.splitlines() if line.startswith("prefix_router_queued ")
                )
                left = sum(row["in_flight"] + row["outstanding_tokens"] for row in rows) + queued
                if not left:
                    break
                await asyncio.sleep(0.1)
        return left

    def _report(self, seconds: float, rate: float, leases: float) -> dict[str, Any]:
        grown = self.memory[1] / max(1, self.memory[0])
        self.faults += [f"trouble: {text}" for text in self._trouble.failed]
        if leases:
            self._fault(f"{leases} leases are left")
        return {
            "seconds": round(seconds, 1), "requests_per_second": round(rate, 1), **self.counts,
            "lost": self.counts["lost"], "wrong": self.counts["wrong"], "refused": self.counts["refused"],
            "leases_left": leases, "kinds": dict(self.kinds), "troubles": dict(self._trouble.done),
            "memory_start_bytes": self.memory[0], "memory_end_bytes": self.memory[1],
            "memory_ratio": round(grown, 3), "worst_health_seconds": round(self.slowest["/healthz"], 4),
            "worst_admin_seconds": round(self.slowest["/admin/workers"], 4), "faults": self.faults,
        }  # fmt: skip


def beyond_bounds(report: dict[str, Any]) -> list[str]:
    """What a soak of some minutes must also keep; a short one on a busy machine cannot."""
    found = []
    if report["requests_per_second"] < LEAST_RATE:
        found.append(f"{report['requests_per_second']} requests a second; at least {LEAST_RATE:.0f} are wanted")
    if report["memory_ratio"] > MOST_MEMORY:
        found.append(f"memory grew to {report['memory_ratio']} times; at most {MOST_MEMORY} is allowed")
    if report["worst_health_seconds"] > MOST_HEALTH:
        found.append(f"a health answer took {report['worst_health_seconds']} s; at most {MOST_HEALTH} is allowed")
    return found


async def soak(seconds: float, rate: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        fleet = Fleet(Path(directory))
        try:
            await fleet.start()
            report = await Soak(fleet, seconds, rate).run()
        finally:
            ends = await fleet.end()
        log = fleet.directory.joinpath("gateway.log").read_text("utf-8", "replace")
        if ends[0] != 0:
            report["faults"].append(f"the gateway ended with {ends[0]}")
        if "Traceback" in log:
            report["faults"].append("a traceback in the gateway's log: " + log[log.index("Traceback") :][:2000])
        return report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="how long (600)")
    parser.add_argument("--rate", type=float, default=400, help="requests a second to send (400)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--short", action="store_true", help="judge the answers only, not speed and memory")
    options = parser.parse_args()
    report = uvloop.run(soak(options.seconds, options.rate))
    if not options.short:
        report["faults"] += beyond_bounds(report)
    if options.json:
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        for name, value in report.items():
            if name != "faults":
                sys.stdout.write(f"{name.replace('_', ' '):32} {value}\n")
        for fault in report["faults"][:SHOWN]:
            sys.stdout.write(f"FAULT  {fault}\n")
        sys.stdout.write(f"{len(report['faults'])} faults\n")
    return 1 if report["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
