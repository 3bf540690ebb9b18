"""The fleet: all known workers, each with its health and its load, kept equal to what discovery reports.

This is the one place that says which workers may be used (`candidates`). The ring stands over *known* workers, so that
one that is down for a while keeps its keys. In a panic, when nearly all look bad, those that were well before are tried
all the same: probes err together more often than workers die together.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from router.core.easing import Ease, HandOver, SlowStart
from router.core.health import DOWN, DRAINING, READY, REQUEST_FAILED, SUSPECT, TRIAL, Health, Signal, Thresholds
from router.core.load import Load
from router.core.ring import Ring
from router.events import WorkerChanged
from router.types import Worker

USABLE = frozenset((READY, SUSPECT, TRIAL))
# Model names, and their characters, remembered between two changes: workers without a model list serve any name.
MOST_CACHED, LONGEST_CACHED = 256, 256
SETTLED_SECONDS = 5.0  # a worker ready for longer was there before
PANIC_SHARE = 0.1  # of the workers that were ever well; with fewer than ten it means none


class Seat:
    """A known worker's place: what it is, how it does, what it has been charged with. One incarnation of it.

    answered, failed: requests that it answered well, and that failed there; its 4xx, 503 and 429 are neither
    """

    __slots__ = ("answered", "discovered", "easing", "engine", "failed", "health", "id", "load", "models",
                 "most", "ready_at", "speed", "usual_most", "wait", "weight", "worker")  # fmt: skip

    def __init__(self, worker: Worker, limits: Thresholds) -> None:
        self.id = worker.id
        self.worker = worker
        self.weight = worker.weight
        self.health = Health(limits)
        self.load = Load()
        self.wait = self.load.wait
        self.speed = worker.weight
        self.answered = self.failed = 0
        self.easing: Ease | None = None
        self.engine: str | None = None  # what it says it runs
        self.ready_at: float | None = None
        self.most: int | None = None  # requests in flight at once: its limit, or one while it is on trial
        self.usual_most: int | None = None  # where the worker itself names none
        self.discovered: frozenset[str] | None = None
        self.models: frozenset[str] | None = None  # None: any
        self.learn(worker, None)

    def __repr__(self) -> str:
        return f"<Seat {self.id} {self.health.state}, {self.load.in_flight} in flight>"

    def learn(self, worker: Worker, discovered: frozenset[str] | None) -> None:
        """What it was configured as, and the models it published: configured ones count."""
        self.worker, self.discovered = worker, discovered
        self.weight = self.speed = worker.weight
        self.models = frozenset(worker.models) if worker.models is not None else discovered
        self.limit()

    def serves(self, model: str | None) -> bool:
        return model is None or self.models is None or model in self.models

    def limit(self) -> None:
        """Set `most` from the worker's limit and its health."""
        own = self.worker.max_in_flight
        self.most = 1 if self.health.state is TRIAL else self.usual_most if own is None else own

    def is_full(self) -> bool:
        return self.most is not None and self.load.in_flight + self.load.elsewhere >= self.most


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
        self._cache: dict[str | None, list[Seat]] = {}

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

    def candidates(self, model: str | None) -> list[Seat]:
        """The workers that may be used for this model now, in the order of their names."""
        found = self._cache.get(model)
        if found is None:
            serving = [seat for seat in self.seats.values() if seat.serves(model)]
            found = sorted(_usable(serving)[0], key=lambda seat: seat.id)
            if len(self._cache) < MOST_CACHED and len(model or "") <= LONGEST_CACHED:
                self._cache[model] = found
        return found

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
        self._cache = {}
        self._named = frozenset(name for seat in self.seats.values() for name in seat.models or ())
        self.panicking = _usable(list(self.seats.values()))[1]


def _usable(seats: list[Seat]) -> tuple[list[Seat], bool]:
    """The usable ones, and whether that took a panic."""
    good = [seat for seat in seats if seat.health.state in USABLE]
    once = [seat for seat in seats if seat.health.was_ready and seat.health.state is not DRAINING]
    if not once or len(good) > PANIC_SHARE * len(once):
        return good, False
    return good + [seat for seat in once if seat.health.state is DOWN], True
