"""The demo's child processes: mock workers and a gateway, started, waited for and ended together.

The commands are the ones a user would type. Children get the demo's own settings only, never the PREFIX_ROUTER_…
variables of the shell, so that the demo is the same everywhere. They run in sessions of their own, so that Ctrl-C
reaches the demo alone and it ends them in order; on Linux the kernel ends them too if the demo is killed outright.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import httpx

from router.clock import monotonic
from router.demo_load import BLOCK_TOKENS, CACHE_BLOCKS, DECODE, PREFILL
from router.layers import PREFIX

START_SECONDS = 20.0
STOP_SECONDS = 3.0
HOST = "127.0.0.1"

# Asks the kernel for SIGTERM at the parent's death, then becomes the command: the wish outlives exec. This needs no
# code between fork and exec, which is unsafe with threads. A parent that died just before is noticed by its id.
LIFELINE = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class FleetError(Exception):
    """A child did not start, or ended by itself. The text is for the user."""


@dataclass(frozen=True, slots=True)
class Child:
    name: str
    process: asyncio.subprocess.Process
    errors: IO[bytes]

    def last_words(self) -> str:
        """What it wrote to standard error, at most the last lines of it."""
        self.errors.seek(0)
        return "\n".join(self.errors.read().decode("utf-8", "replace").strip().splitlines()[-20:])


class Fleet:
    """Fresh workers with empty caches, and a gateway in front of them. `start` and `stop` may alternate."""

    def __init__(self, workers: int, port: int) -> None:
        self.ids = [f"worker-{at}" for at in range(1, workers + 1)]
        self.port = port  # 0 until the first start has found a free one; later starts listen there again
        self._children: list[Child] = []

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def start(self, policy: str) -> None:
        """Returns when every worker is ready. Raises FleetError."""
        mock = (
            *("-m", "backends", "mock", "--port", "0", "--prefill-tokens-per-second", str(PREFILL)),
            *(
                "--decode-tokens-per-second",
                str(DECODE),
                "--cache-blocks",
                str(CACHE_BLOCKS),
                "--block-tokens",
                str(BLOCK_TOKENS),
            ),
        )
        clean = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        for worker in self.ids:
            await self._spawn(worker, mock, clean)
        urls = [await self._address(child) for child in self._children]
        settings = {
            "WORKERS": json.dumps([{"url": url, "id": name} for url, name in zip(urls, self.ids, strict=True)]),
            "LOG__ACCESS": "none",
            "LOG__LEVEL": "error",
            "SHUTDOWN__GRACE_SECONDS": "0",
            "SHUTDOWN__DRAIN_SECONDS": "1",
        }
        serve = ("-m", "router", "serve", "--host", HOST, "--port", str(self.port), "--policy", policy)
        gateway = await self._spawn("the gateway", serve, clean | {PREFIX + k: v for k, v in settings.items()})
        self.port = int((await self._address(gateway)).rsplit(":", 1)[1])
        await self._ready()

    async def ended(self) -> str:
        """Waits until a child ends by itself, and says which and why."""
        waits = {asyncio.create_task(child.process.wait()): child for child in self._children}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        child = waits[done.pop()]
        said = child.last_words()
        return f"{child.name} ended by itself (status {child.process.returncode})" + (f": {said}" if said else "")

    async def stop(self) -> None:
        """Ends every child, gently if it can be, and waits for it."""
        children, self._children = self._children, []
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                child.process.terminate()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    for child in children:
                        await child.process.wait()
        finally:
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    child.process.kill()
                child.errors.close()
        for child in children:
            await child.process.wait()

    async def _spawn(self, name: str, arguments: Sequence[str], environment: dict[str, str]) -> Child:
        command = [sys.executable, *arguments]
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", LIFELINE, str(os.getpid()), *command]
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=errors, env=environment,
            start_new_session=True,
        )  # fmt: skip
        child = Child(name, process, errors)
        self._children.append(child)
        return child

    async def _address(self, child: Child) -> str:
        """The address in the line that a child prints once it listens."""
        assert child.process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                line = (await child.process.stdout.readline()).decode()
                if not line:
                    await child.process.wait()
        except TimeoutError:
            raise FleetError(f"{child.name} did not listen within {START_SECONDS:g} s") from None
        if not line:
            raise FleetError(child.last_words() or f"{child.name} ended with status {child.process.returncode}")
        return line.split()[-1]

    async def _ready(self) -> None:
        deadline = monotonic() + START_SECONDS
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=2.0) as client:
            while monotonic() < deadline:
                with contextlib.suppress(httpx.HTTPError, ValueError):
                    said: dict[str, Any] = (await client.get("/readyz")).json()
                    if said.get("workers_ready") == len(self.ids):
                        return
                await asyncio.sleep(0.05)
        raise FleetError(f"the workers were not ready within {START_SECONDS:g} s")
