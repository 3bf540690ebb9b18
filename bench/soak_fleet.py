"""The soak's processes: mock workers on fixed ports that can be killed and started again, and a gateway of two."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import yaml

WORKERS, SPARE = 4, 1  # the spare one joins and leaves
SPEED = ("--time-scale", "0.03", "--max-running", "256")
START_SECONDS = 30.0
FORGETS = 4000  # prefixes remembered, so that the table is full long before the end


class Process:
    """One child, which may be started anew under the same name."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self._arguments, self._log = arguments, log
        self._child: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", *self._arguments, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        assert self._child.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            line = await self._child.stdout.readline()
        if b" listening on " not in line:
            raise RuntimeError(f"{' '.join(self._arguments)} did not start; see {self._log}")

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def send(self, sig: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, sig)

    async def end(self, sig: int = signal.SIGTERM) -> int:
        """Send it, and wait for the end; its exit status."""
        assert self._child is not None
        self.send(sig)
        self.send(signal.SIGCONT)
        return await self._child.wait()


class Fleet:
    """`names` are the workers' ids; `url` is the gateway's. Its settings are a file, written anew by `configure`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = _free_ports(WORKERS + SPARE + 2)
        self.gateway_port, self.reference_port = self.ports.pop(), self.ports.pop()
        self.names = [f"127.0.0.1:{port}" for port in self.ports[:WORKERS]]
        self.spare = f"127.0.0.1:{self.ports[WORKERS]}"
        self.workers = {name: self._worker(int(name.rpartition(":")[2])) for name in [*self.names, self.spare]}
        self.reference = self._worker(self.reference_port)
        self.url = f"http://127.0.0.1:{self.gateway_port}"
        self.settings = directory / "gateway.yaml"
        self.gateway = Process("router", "serve", "--config", str(self.settings), log=directory / "gateway.log")

    async def start(self) -> None:
        self.configure()
        await asyncio.gather(*(worker.start() for worker in [*self.workers.values(), self.reference]))
        await self.gateway.start()
        async with (
            httpx.AsyncClient(base_url=self.url, trust_env=False, verify=False) as client,
            asyncio.timeout(START_SECONDS),
        ):
            while (await client.get("/readyz")).json()["workers_ready"] < WORKERS:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)

    def configure(self, *, spare: bool = False, **changes: Any) -> None:
        """Write the settings; the gateway reads them when it is told, or finds the file changed."""
        names = [*self.names, self.spare] if spare else self.names
        settings: dict[str, Any] = {
            "listen": {"port": self.gateway_port, "processes": 2},
            "workers": [{"url": f"http://{name}", "weight": 1} for name in names],
            "routing": {"table_hashes": FORGETS, "slow_start_seconds": 5},
            "log": {"access": str(self.directory / "access.log"), "level": "info"},
            "shutdown": {"grace_seconds": 0, "drain_seconds": 20},
        }
        written = self.settings.with_suffix(".new")
        written.write_text(yaml.safe_dump(settings | changes), "utf-8")
        written.replace(self.settings)

    async def end(self) -> list[int]:
        """End all of them in order; the gateway's exit status comes first."""
        ends = [await self.gateway.end()]
        everyone = [*self.workers.values(), self.reference]
        return ends + await asyncio.gather(*(worker.end() for worker in everyone))

    def _worker(self, port: int) -> Process:
        log = self.directory / f"worker-{port}.log"
        return Process("backends", "mock", "--port", str(port), *SPEED, log=log)


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; 0 if it is gone."""
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text("ascii"))
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
