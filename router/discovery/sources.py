"""What is watched for workers: one task a source, begun, ended and swapped as the settings want it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from router.contracts import Source
from router.sections.discovery import Discovery
from router.types import Worker

log = logging.getLogger("router")

AGAIN_SECONDS = 1.0  # a source that failed in a way nobody foresaw is watched again


class Sources:
    """`report` is told each source's complete sets, under the source's name; `build` makes a source of its settings.

    A source whose settings changed is swapped: what it reported stays until its successor's first set. One that is no
    longer in the settings reports nobody.
    """

    def __init__(
        self, report: Callable[[object, tuple[Worker, ...]], None], build: Callable[[str, Any], Source]
    ) -> None:
        self._report, self._build = report, build
        self._watched: dict[str, tuple[Any, asyncio.Task[None]]] = {}
        self._tasks: dict[asyncio.Task[None], asyncio.Event] = {}  # and whether it reported yet
        self._open = False

    def open(self, fixed: Source, discovery: Discovery) -> None:
        """Begin, on the running loop. `fixed` is watched until the end, and reports under itself."""
        self._open = True
        self._begin("static workers", fixed, fixed)
        self.adopt(discovery)

    def adopt(self, discovery: Discovery) -> None:
        """Watch what these settings name, and nothing else. Before `open` nothing is watched."""
        if not self._open:
            return
        wanted = {name: options for name in Discovery.model_fields if (options := getattr(discovery, name))}
        for name, (options, task) in list(self._watched.items()):
            if wanted.get(name) != options:
                task.cancel()
                del self._watched[name]
                if name not in wanted:
                    self._report(name, ())
        for name, options in wanted.items():
            if name not in self._watched:
                self._watched[name] = options, self._begin(f"{name} workers", name, self._build(name, options))

    async def heard(self, seconds: float) -> bool:
        """Wait until every source has reported once, though no longer than this; whether they have."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for reported in list(self._tasks.values()):
                    await reported.wait()
        return all(reported.is_set() for reported in self._tasks.values())

    async def close(self) -> None:
        """End all, and wait until each has let go of its connections."""
        self._open = False
        self._watched.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, task_name: str, name: object, source: Source) -> asyncio.Task[None]:
        reported = asyncio.Event()
        task = asyncio.create_task(self._watch(name, source, reported), name=task_name)
        self._tasks[task] = reported
        task.add_done_callback(self._tasks.pop)
        return task

    async def _watch(self, name: object, source: Source, reported: asyncio.Event) -> None:
        while True:
            try:
                async with contextlib.aclosing(source.watch()) as sets:
                    async for workers in sets:
                        self._report(name, workers)
                        reported.set()
                return
            except Exception:
                log.exception("a source of workers failed; it is watched again")
            await asyncio.sleep(AGAIN_SECONDS)
