"""What became of the generations this worker was asked for, counted from the answers' ends.

Independent of the engine on purpose: a request that a fault holds back, or that the engine still queues, has begun
for its client all the same. Law: started = finished + aborted + the ones in progress.
"""

import asyncio
from collections.abc import Callable

from backends.http import Answer


class Ledger:
    def __init__(self) -> None:
        self.started = 0
        self.finished = 0
        self.aborted = 0
        self.max_in_progress = 0
        self.held = 0
        self.max_held = 0
        self._open: set[int] = set()
        self._ended = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Ledger {self.started} started, {self.finished} finished, {self.aborted} aborted>"

    @property
    def in_progress(self) -> int:
        return self.started - self.finished - self.aborted

    async def quiet(self) -> None:
        """Returns once nothing is in progress."""
        while self.in_progress:
            self._ended.clear()
            await self._ended.wait()

    def begin(self, answer: Answer) -> None:
        """Counts this answer as a generation, once however often it is called with the same object."""
        if id(answer) in self._open:
            return
        self._open.add(id(answer))
        self.started += 1
        self.max_in_progress = max(self.max_in_progress, self.in_progress)
        answer.when_over(lambda complete: self._end(id(answer), complete))

    def hold(self, answer: Answer) -> Callable[[], None]:
        """Counts a generation that is in nobody's hands but ours, until the returned call or the answer's end."""
        self.begin(answer)
        self.held += 1
        self.max_held = max(self.max_held, self.held)
        holding = True

        def let_go(_: bool = False) -> None:
            nonlocal holding
            if holding:
                holding = False
                self.held -= 1

        answer.when_over(let_go)
        return let_go

    def _end(self, key: int, complete: bool) -> None:
        self._open.discard(key)
        if complete:
            self.finished += 1
        else:
            self.aborted += 1
        self._ended.set()
