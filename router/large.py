"""Large bodies are read one at a time, with the event loop's other work in between.

Reading and hashing two megabytes takes some milliseconds. Thirty such bodies that are whole in the same turn of the
loop would hold up everybody else, health included, for all of them together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

LARGE: Final = 262_144  # bytes; what is smaller takes about a millisecond at most


def parts_of(body: bytes) -> int:
    """Objects and lists, and a tenth of the commas, for the items of long lists.

    That is what reading JSON costs, in time and in memory: a body of empty lists takes two hundred times its size.
    Marks within texts count too, so the limit is far above any prompt's.
    """
    return body.count(b"{") + body.count(b"[") + body.count(b",") // 10


class OneByOne:
    def __init__(self) -> None:
        self._steps: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: Callable[[], None]) -> None:
        """Take this step in a turn of its own, after those that came before. It must not raise."""
        self._steps.append(step)
        if len(self._steps) == 1:
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        step = self._steps[0]
        try:
            step()
        finally:
            self._steps.popleft()
            if self._steps:
                asyncio.get_running_loop().call_soon(self._take)
