"""Keeps the load table and this process's ledger up to date with each other.

While something is in flight anywhere, or was a moment ago, every 15 ms: less than any prefill takes, and in that time
this process decides on a few dozen requests at most. With many workers and processes less often, so that looking never
takes more than a hundredth of a core. Otherwise it looks 20 times a second whether somebody began. Where a worker has a
limit, the others are told of every request at once, so that they seldom pass it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from router.core.fleet import Fleet, Seat
from router.events import Chosen, Finished
from router.signals.load_table import FIELDS, Row, credible

TICK, QUIET_TICK = 0.015, 0.05  # seconds
LOOK_COST = 1.4e-7  # seconds of a look for each worker in each row, as measured; it may take a hundredth of the time
LINGER = 1.0  # seconds of looking often after the last request


class LoadSharing:
    """`heard` is called when other processes have less at some worker than before: those that wait here may go.
    `limited` is called once, when a worker first has a limit: from then on `note` is to be told of every request."""

    def __init__(
        self, row: Row, fleet: Fleet, clock: Callable[[], float], heard: Callable[[], None], limited: Callable[[], None]
    ) -> None:
        self._row, self._fleet, self._clock, self._heard = row, fleet, clock, heard
        self._on_limited: Callable[[], None] | None = limited
        self._seats: list[Seat] = []
        self._theirs: list[float] = []
        self._written: list[float] = []
        self._limited: dict[str, int] = {}  # workers with a limit -> their places
        self._until = 0.0  # looking often until then
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """On the event loop."""
        self._tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, event: Chosen | Finished) -> None:
        """A request was sent, or is over."""
        place = self._limited.get(event.worker or "")
        if place is not None and place < len(self._seats):
            load = self._seats[place].load
            self._row.put(place, (load.in_flight, load.waiting, load.charged), self._clock())
            self._written = []

    def look(self) -> None:
        """Tell and hear, now."""
        now = self._clock()
        seats = list(self._fleet.seats.values())
        if seats != self._seats:
            self._seats = seats
            self._row.name([seat.id for seat in seats])
            self._theirs, self._written = [], []
        busy = self._tell(now)
        if busy:
            self._until = now + LINGER
        if now < self._until or any(self._theirs) or self._row.anyone_busy(now):
            self._hear(now)

    def _tell(self, now: float) -> bool:
        mine: list[float] = []
        limited = {}
        for place, seat in enumerate(self._seats):
            load = seat.load
            mine += (load.in_flight, load.waiting, load.charged)
            if seat.most is not None:
                limited[seat.id] = place
        self._limited = limited
        if limited and self._on_limited is not None:
            self._on_limited()
            self._on_limited = None
        busy = any(mine)
        self._row.write(mine if mine != self._written else (), now, busy=busy)
        self._written = mine
        return busy

    def _hear(self, now: float) -> None:
        theirs = self._row.read(now) or [0.0] * (FIELDS * len(self._seats))
        before, self._theirs = self._theirs, theirs
        if theirs == before:
            return
        less = False
        for at, seat in zip(range(0, len(theirs), FIELDS), self._seats, strict=False):
            in_flight = int(credible(theirs[at]))
            less = less or in_flight < seat.load.elsewhere
            seat.load.hear_siblings(in_flight, int(credible(theirs[at + 1])), credible(theirs[at + 2]))
        if less:
            self._heard()

    def _tick(self) -> None:
        self.look()
        often = self._clock() < self._until or self._row.anyone_busy(self._clock())
        cost = LOOK_COST * len(self._seats) * self._row.rows
        self._timer = asyncio.get_running_loop().call_later(max(TICK, 100 * cost) if often else QUIET_TICK, self._tick)
