"""A rolling restart: one process after the other has a successor, and no connection is refused or cut.

The successor listens on the same socket, which the parent holds, so what waits there waits for both. Once it is
acquainted with its workers the old process takes no new connections; it ends when its streams have.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from router.processes.messages import LEAVE
from router.reload import Reloader

if TYPE_CHECKING:
    from router.processes.supervisor import Supervisor

log = logging.getLogger("router")

START_SECONDS = 120.0  # for a successor to listen; then the old process stays


class Renewal:
    def __init__(self, parent: Supervisor, reloader: Reloader) -> None:
        self._parent, self._reloader = parent, reloader
        self._tasks: set[asyncio.Task[object]] = set()
        self._all_anew, self._turn = asyncio.Lock(), asyncio.Lock()

    def begin(self, index: int | None = None) -> None:
        """Renew the process with this index, or all of them, in a task of its own."""
        task: asyncio.Task[object] = asyncio.create_task(
            self._all() if index is None else self._one(index), name="renewal"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _all(self) -> None:
        if self._all_anew.locked():
            log.warning("a rolling restart is under way; this one is left out")
            return
        async with self._all_anew:
            log.info("rolling restart: it begins")
            wanted = self._reloader.wanted
            for index in sorted(self._parent.lives):
                if not await self._one(index):
                    log.error("rolling restart: it stops here, the other processes stay")
                    return
            if self._reloader.wanted is wanted:
                self._reloader.renewed()
            log.info("rolling restart: every process has a successor")

    async def _one(self, index: int) -> bool:
        """One at a time: each successor needs a row in the table of loads."""
        async with self._turn:
            return await self._renew(index)

    async def _renew(self, index: int) -> bool:
        parent = self._parent
        await self._room()
        async with parent.locks[index]:
            old = parent.lives[index]
            if parent.stopping.is_set():
                return False
            if old.over.done() or not old.member.listens.is_set():
                return True  # it is new anyway
            new = parent.start(index)
            listening = asyncio.create_task(new.member.listens.wait())
            ends = {listening, new.over}
            await asyncio.wait(ends, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            listening.cancel()
            if not new.member.listens.is_set() or new.over.done():
                new.kill()
                log.error("process %d could not be renewed: its successor did not start", index)
                return False
            parent.lives[index] = new
            old.replaced.set_result(None)
            old.member.leaving = True
            grace = self._reloader.settings.shutdown.grace_seconds
            old.member.line.tell(LEAVE, str(grace).encode())
            return True

    async def _room(self) -> None:
        """There is one row in the table of loads for each process, for a leaving one of each, and for a successor."""
        while True:
            leaving = [life.over for life in self._parent.running if life.member.leaving]
            if len(leaving) < len(self._parent.lives):
                return
            await asyncio.wait(leaving, return_when=asyncio.FIRST_COMPLETED)
