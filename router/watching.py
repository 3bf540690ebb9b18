"""What looks at all of something now and then: at workers that may do badly, and at those in the waiting room.

The watch over workers looks at all of them now and then, while there are connections to any.

A request costs it nothing: connections count their reads, journeys their good answers, and the fleet the failures.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from router.attempt import Attempt
from router.core.fleet import Seat
from router.core.health import DOWN, EJECTED, STALLED
from router.core.outliers import OutlierLimits, Outliers
from router.core.queue import WaitingRoom
from router.core.stalls import Silence
from router.proxy.exchange import Receiver
from router.proxy.resolve import Name
from router.proxy.sweep import Sweep
from router.proxy.upstream import Pool
from router.sections.limits import HealthSettings

if TYPE_CHECKING:
    from router.house import House

MOST: Final = 1.0  # seconds between two looks
LEAST: Final = 0.1
STOOD_STILL: Final = 5.0  # times that; then it was this process that said and heard nothing


class Watch:
    """Among what the sweep watches; ends when nothing else is there, and begins with the next connection."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.deadline = -inf
        self.outliers = Outliers()
        self.stall_seconds = 0.0
        self._silences: dict[Seat, Silence] = {}
        self._every = MOST
        self._looked_at = -inf

    def go_by(self, health: HealthSettings) -> None:
        self.stall_seconds = health.stall_seconds
        given = health.outliers.model_dump(exclude={"eject_seconds", "eject_most_seconds"})
        self.outliers.limits = OutlierLimits(**given)
        shortest = min(health.stall_seconds or inf, health.outliers.window_seconds) / 10
        self._every = min(MOST, max(LEAST, shortest))

    def overdue(self, now: float) -> None:
        self.deadline = now + self._every
        if len(self.house.sweep) == 1:
            self.house.sweep.forget(self)
            self._looked_at = -inf
            return
        missed = now - self._looked_at - STOOD_STILL * self._every
        if 0.0 < missed < inf:
            for silence in self._silences.values():
                silence.excuse(now - self._looked_at)
        self._looked_at = now
        self.look(now)

    def look(self, now: float) -> None:
        house = self.house
        seats = list(house.fleet.seats.values())
        self._silences = {seat: self._silences.get(seat) or Silence(now) for seat in seats}
        for seat, silence in self._silences.items():
            pool = house.pool_of(seat)
            if pool is not None and pool.waiting and seat.health.state is DOWN:
                pool.turn_away(partial(self._has_elsewhere, seat))
            if pool is not None and self.stall_seconds and self._is_stalled(seat, pool, silence, now):
                house.signal(seat, STALLED, "stalled")
                pool.turn_away()
        for seat, cause in self.outliers.look(seats, now):
            house.signal(seat, EJECTED, cause)

    def moved(self, name: Name, gone: frozenset[str]) -> None:
        """A worker's name leads elsewhere now: what served there took its cache with it."""
        if name.preferred in gone:
            for seat in self.house.fleet.seats.values():
                if seat.worker.address.host == name.host:
                    self.house.mind.lost(seat)

    def _has_elsewhere(self, seat: Seat, receiver: Receiver) -> bool:
        """Another worker could take it, so it need not wait for a connection to one that is down."""
        if not isinstance(receiver, Attempt):
            return False
        journey = receiver.journey
        others = self.house.fleet.candidates(journey.model)
        return any(other is not seat and other.id not in journey.tried for other in others)

    def _is_stalled(self, seat: Seat, pool: Pool, silence: Silence, now: float) -> bool:
        oldest = seat.load.oldest()
        if silence.look(pool.reads, None if oldest is None else oldest.since, now) < self.stall_seconds:
            return False
        waiting = [
            (since, receiver)
            for since, receiver in pool.unanswered()
            if isinstance(receiver, Attempt) and receiver.lease.waits
        ]
        if not waiting:
            return False  # they wait for a connection, or their clients do not read
        since, first = min(waiting, key=lambda each: each[0])
        streaming = any(receiver.journey.stream for _, receiver in waiting)
        silent = min(silence.seconds, now - since)
        return silent >= silence.allowed(
            self.stall_seconds, seat.load, first.lease.tokens, streaming=streaming, now=now
        )


class RoomWatch:
    """Lets the sweep look into the waiting room while somebody is in it."""

    deadline = -inf

    def __init__(self, room: WaitingRoom, sweep: Sweep) -> None:
        self.room = room
        self.sweep = sweep

    def overdue(self, now: float) -> None:
        if self.room.hoping:
            self.room.pump()  # some may have waited long enough for a worker of their choice: others have room for them
        self.room.expire(now)
        if not len(self.room):
            self.sweep.forget(self)
