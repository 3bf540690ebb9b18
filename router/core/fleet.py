"""The fleet: all known workers, each with its health and its load, kept equal to what discovery reports.

This is the one place that says which workers may be used (`candidates`). The ring stands over *known* workers, so that
one that is down for a while keeps its keys. In a panic, when nearly all look bad, those that were well before are tried
all the same: probes err together more often than workers die together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from router.core.candidates import Candidates
from router.core.easing import HandOver, SlowStart
from router.core.health import DOWN, DRAINING, READY, REQUEST_FAILED, SUSPECT, TRIAL, Signal, Thresholds
from router.core.ring import Ring
from router.core.seat import Seat as Seat
from router.core.speed import set_speeds
from router.events import WorkerChanged
from router.types import Worker

USABLE: Final = frozenset((READY, SUSPECT, TRIAL))
# Model names, and their characters, remembered between two changes: workers without a model list serve any name.
MOST_CACHED: Final = 256
LONGEST_CACHED: Final = 256
SETTLED_SECONDS: Final = 5.0  # a worker ready for longer was there before
PANIC_SHARE: Final = 0.1  # of the workers that were ever well; with fewer than ten it means none


class Changes(msgspec.Struct, frozen=True):
    """What a reconciliation did: the caller closes connections, starts probes and tells listeners."""

    joined: tuple[Seat, ...]
    left: tuple[Seat, ...]
    updated: tuple[Seat, ...]


class Fleet:
    def __init__(self, limits: Thresholds | None = None, slow_start_seconds: float = 30.0) -> None:
        self.limits = limits or Thresholds()
        self.slow_start_seconds = slow_start_seconds
        self.ring = Ring()
        self.seats: dict[str, Seat] = {}
        self.panicking = False
        self.usual_most: int | None = None
        self._named: frozenset[str] = frozenset()
        self._cache: dict[str | None, Candidates] = {}
        self._lists: dict[tuple[Seat, ...], Candidates] = {}  # every list once, whichever models have it
        self._older: dict[tuple[Seat, ...], Candidates] = {}  # those before the last change, for it may change back

    def __repr__(self) -> str:
        return f"<Fleet {' '.join(f'{seat.id}={seat.health.state}' for seat in self.seats.values())}>"

    def reconcile(self, workers: Iterable[Worker]) -> Changes:
        """Make the fleet equal to this complete set. Of two with one id the last counts. Kept seats keep their load."""
        wanted = {worker.id: worker for worker in workers}
        left = tuple(seat for name, seat in self.seats.items() if name not in wanted)
        joined, updated = [], []
        for name, worker in wanted.items():
            seat = self.seats.get(name)
            if seat is None or seat.worker.address != worker.address:
                if seat is not None:
                    left += (seat,)
                joined.append(Seat(worker, self.limits))
            elif seat.worker != worker:
                seat.learn(worker, seat.discovered)
                updated.append(seat)
        for seat in left:
            del self.seats[seat.id]
        for seat in joined:
            self.seats[seat.id] = seat
        self.limit_each(self.usual_most)
        self.ring.place({seat.id: seat.weight for seat in self.seats.values()})
        self._refresh()
        self._forget_lists()
        return Changes(tuple(joined), left, tuple(updated))

    def limit_each(self, most: int | None) -> None:
        """Workers that name no limit themselves take so many requests at once."""
        self.usual_most = most
        for seat in self.seats.values():
            seat.usual_most = most
            seat.limit()

    def feed(self, seat: Seat, signal: Signal, now: float, cause: str = "") -> WorkerChanged | None:
        """Tell a worker's health; the fact, if its state moved."""
        if signal is REQUEST_FAILED:
            seat.failed += 1
        before, after = seat.health.feed(signal, now)
        if before is after:
            return None
        if after is READY and (seat.ready_at is None or before in (DOWN, TRIAL)):
            self._begin(seat, now)
        elif after is DRAINING:
            seat.easing = None
        seat.limit()
        self._refresh()
        return WorkerChanged(seat.id, before, after, cause or signal)

    def _begin(self, seat: Seat, now: float) -> None:
        """A worker starts cold: slowly, where others were at work before, and not in a fleet that starts together."""
        at_work = any(
            other.ready_at is not None and now - other.ready_at > SETTLED_SECONDS and other.health.state in USABLE
            for other in self.seats.values()
            if other is not seat
        )
        seat.ready_at = now
        if at_work and self.slow_start_seconds > 0:
            seat.easing = SlowStart(now, self.slow_start_seconds)

    def hand_over(self, seat: Seat, now: float, seconds: float) -> None:
        """The worker will be drained in that time: its prefixes begin to move."""
        seat.easing = HandOver(now, seconds)

    def discover(self, seat: Seat, models: frozenset[str] | None) -> None:
        """The worker published its models."""
        if seat.discovered != models:
            seat.learn(seat.worker, models)
            self._refresh()
            self._forget_lists()

    def candidates(self, model: str | None) -> Candidates:
        """The workers that may be used for this model now, in the order of their names."""
        found = self._cache.get(model)
        if found is None:
            serving = [seat for seat in self.seats.values() if seat.serves(model)]
            found = self._listed(tuple(sorted(_usable(serving)[0], key=lambda seat: seat.id)))
            if len(self._cache) < MOST_CACHED and len(model or "") <= LONGEST_CACHED:
                self._cache[model] = found
        return found

    def set_speeds(self) -> None:
        """Some paces were learnt."""
        if set_speeds(list(self.seats.values())):
            self._forget_lists()

    def fade(self, factor: float, now: float) -> None:
        """Time has passed: what was sent counts for less, and who was eased for long enough is eased no more."""
        for seat in self.seats.values():
            seat.load.traffic *= factor
            if seat.easing is not None and now >= seat.easing.until:
                seat.easing = None
        for each in (*self._lists.values(), *self._older.values()):
            each.standing.recount()

    def known_model(self, model: str) -> bool:
        """Some worker names this model as its own, so it may be remembered and counted by name."""
        return model in self._named

    def served(self, model: str | None) -> bool:
        """Some worker, ready or not, serves it or may."""
        return any(seat.serves(model) for seat in self.seats.values())

    def models(self) -> list[str]:
        """Every model that some worker names."""
        return sorted(self._named)

    def ready(self) -> list[Seat]:
        return [seat for seat in self.seats.values() if seat.health.state in USABLE]

    def _refresh(self) -> None:
        """The candidates may be others now."""
        self._cache = {}
        for each in self._older.values():
            each.standing.dissolve()
        self._older, self._lists = self._lists, {}
        self._named = frozenset(name for seat in self.seats.values() for name in seat.models or ())
        self.panicking = _usable(list(self.seats.values()))[1]

    def _listed(self, seats: tuple[Seat, ...]) -> Candidates:
        found = self._lists.get(seats) or self._older.pop(seats, None) or Candidates(seats)
        self._lists[seats] = found
        return found

    def _forget_lists(self) -> None:
        """The workers themselves are others now, or their speeds."""
        self._cache = {}
        for each in (*self._lists.values(), *self._older.values()):
            each.standing.dissolve()
        self._lists, self._older = {}, {}


def _usable(seats: list[Seat]) -> tuple[list[Seat], bool]:
    """The usable ones, and whether that took a panic."""
    good = [seat for seat in seats if seat.health.state in USABLE]
    once = [seat for seat in seats if seat.health.was_ready and seat.health.state is not DRAINING]
    if not once or len(good) > PANIC_SHARE * len(once):
        return good, False
    return good + [seat for seat in once if seat.health.state is DOWN], True
