"""What happens to the fleet during the soak: one trouble at a time, in a fixed order, each undone before the next."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import httpx

from bench.soak_fleet import WORKERS, Fleet

PAUSE = 2.5  # seconds that a worker is frozen or slow
AFTERMATH = 1.0  # seconds after a death in which its last requests may still be told of it


class Trouble:
    """`deaths`: (time, worker id, or "gateway" for one of its processes)."""

    def __init__(self, fleet: Fleet, gap: float) -> None:
        self._fleet, self._gap = fleet, gap
        self._dice = random.Random(2)
        self._admin = httpx.AsyncClient(base_url=fleet.url, timeout=10, trust_env=False, verify=False)
        self.deaths: list[tuple[float, str]] = []
        self.done: Counter[str] = Counter()
        self.failed: list[str] = []

    async def run(self, *, process_at: float) -> None:
        """Until it is cancelled. `process_at`: when one of the gateway's processes is killed."""
        kinds: list[Callable[[str], Awaitable[None]]] = [
            self.killed, self.reconfigured, self.frozen, self.drained, self.slow, self.restarted, self.joined,
        ]  # fmt: skip
        turn = 0
        while True:
            await asyncio.sleep(self._gap)
            if time.monotonic() >= process_at and not self.done["process killed"]:
                await self._kill_process()
                continue
            kind = kinds[turn % len(kinds)]
            turn += 1
            await kind(self._dice.choice(self._fleet.names))
            self.done[kind.__name__] += 1
            await self._all_ready()

    async def killed(self, name: str) -> None:
        self.deaths.append((time.monotonic(), name))
        await self._fleet.workers[name].end(signal.SIGKILL)
        await asyncio.sleep(1.0)
        await self._fleet.workers[name].start()

    async def restarted(self, name: str) -> None:
        await self._post(f"/admin/workers/{name}/drain")
        await self._idle(name)
        await self._fleet.workers[name].end()
        await self._fleet.workers[name].start()
        await self._post(f"/admin/workers/{name}/undrain")

    async def frozen(self, name: str) -> None:
        self._fleet.workers[name].send(signal.SIGSTOP)
        try:
            await asyncio.sleep(PAUSE)
        finally:
            self._fleet.workers[name].send(signal.SIGCONT)

    async def slow(self, name: str) -> None:
        async with httpx.AsyncClient(base_url=f"http://{name}", trust_env=False, verify=False) as worker:
            await worker.post("/faults", json={"delay": 0.3, "share": 0.5})
            await asyncio.sleep(PAUSE)
            await worker.delete("/faults")

    async def drained(self, name: str) -> None:
        await self._post(f"/admin/workers/{name}/drain")
        await asyncio.sleep(PAUSE)
        await self._post(f"/admin/workers/{name}/undrain")

    async def reconfigured(self, _: str) -> None:
        self._fleet.configure(queue={"max": self._dice.randint(500, 1500)}, timeouts={"connect_seconds": 3})
        self._fleet.gateway.send(signal.SIGHUP)
        await asyncio.sleep(PAUSE)
        self._fleet.configure()
        await self._post("/admin/reload")

    async def joined(self, _: str) -> None:
        self._fleet.configure(spare=True)
        await self._post("/admin/reload")
        await asyncio.sleep(PAUSE)
        self._fleet.configure()
        await self._post("/admin/reload")

    async def _kill_process(self) -> None:
        rows = (await self._admin.get("/admin/processes")).json()["processes"]
        self.deaths.append((time.monotonic(), "gateway"))
        os.kill(self._dice.choice(rows)["pid"], signal.SIGKILL)
        self.done["process killed"] += 1
        await asyncio.sleep(PAUSE)

    async def _post(self, path: str) -> None:
        for _ in range(3):  # a connection to a process that was killed is no answer
            try:
                answer = await self._admin.post(path)
            except httpx.TransportError:
                continue
            if answer.status_code != 200:
                self.failed.append(f"{path}: {answer.status_code} {answer.text[:200]}")
            return
        self.failed.append(f"{path}: no answer")

    async def _idle(self, name: str) -> None:
        for _ in range(200):
            rows = (await self._admin.get("/admin/workers")).json()["workers"]
            if all(row["in_flight"] == 0 for row in rows if row["id"] == name):
                return
            await asyncio.sleep(0.1)
        self.failed.append(f"{name} was drained and never idle")

    async def _all_ready(self) -> None:
        """Both processes find every worker ready again."""
        for _ in range(300):
            found = []
            for _ in range(4):
                async with httpx.AsyncClient(base_url=self._fleet.url, trust_env=False, verify=False) as fresh:
                    found.append((await fresh.get("/readyz")).json()["workers_ready"])
            if min(found) >= WORKERS:
                return
            await asyncio.sleep(0.1)
        self.failed.append("not all workers became ready again within 30 s")
