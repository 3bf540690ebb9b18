"""The workers of the settings: one set, which a reload replaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

from router.types import Worker


class StaticSource:
    def __init__(self, workers: Iterable[Worker]) -> None:
        self.workers = tuple(workers)
        self._changed = asyncio.Event()
        self._changed.set()

    def replace(self, workers: Iterable[Worker]) -> None:
        self.workers = tuple(workers)
        self._changed.set()

    async def watch(self) -> AsyncGenerator[tuple[Worker, ...], None]:
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield self.workers
