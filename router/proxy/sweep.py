"""One timer for all limits: what has a deadline is watched, and a sweep a few times a second finds the overdue.

A timer object a request would cost more than the request's whole decision. A connection is watched for as long as it is
open and only its `deadline` moves, so a request costs no more than setting a number. Limits are seconds, so being late
by a tenth of one is no loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

INTERVAL: Final = 0.1
PATIENCE: Final = 10.0  # times `read_seconds` that a body may take at any pace
SLOWEST: Final = 1024.0  # bytes a second that it must come at then


class ClientLimits(NamedTuple):
    """Seconds and bytes that a client may take."""

    read_seconds: float
    write_seconds: float
    header_bytes: int


class Watched(Protocol):
    """`deadline` is in the clock's seconds, infinity for none now; `overdue` is called once it has passed."""

    deadline: float

    def overdue(self, now: float) -> None: ...


class Sweep:
    """Runs only while something is watched."""

    def __init__(self, clock: Callable[[], float], interval: float = INTERVAL) -> None:
        self.clock = clock
        self.interval = interval
        self._watched: dict[Watched, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._watched)

    def __iter__(self) -> Iterator[Watched]:
        return iter(list(self._watched))

    def watch(self, thing: Watched) -> None:
        self._watched[thing] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.interval, self._look)

    def forget(self, thing: Watched) -> None:
        self._watched.pop(thing, None)

    def _look(self) -> None:
        now = self.clock()
        for thing in [thing for thing in self._watched if thing.deadline <= now]:
            if thing in self._watched:
                thing.overdue(now)
        self._timer = asyncio.get_running_loop().call_later(self.interval, self._look) if self._watched else None
