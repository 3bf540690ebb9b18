"""What is counted where requests wait, are limited, or run out of time."""

from __future__ import annotations

from router.events import DeadlinePassed, Limited, NoPlace, Queued
from router.observe.bus import Bus
from router.observe.series import Counter


class Pressure:
    """Listens to the bus."""

    def __init__(self, bus: Bus) -> None:
        self._left = Counter("queue_left", "Requests that left the waiting room, or found no place", "priority", "how")
        self._waited = Counter("queue_admitted_seconds", "Seconds that those waited who found a worker", "priority")
        self._warm = Counter("warm_waits", "Requests that waited for the worker that holds their prompt", "got")
        self._limited = Counter("rate_limited", "Requests beyond their caller's rate", "kind")
        self._deadlines = Counter("deadlines_passed", "Requests whose time was up, by phase", "phase")
        self.counters = [self._left, self._waited, self._warm, self._limited, self._deadlines]
        bus.on(Queued, self._queued)
        bus.on(NoPlace, self._no_place)
        bus.on(Limited, self._limit)
        bus.on(DeadlinePassed, self._late)

    def _queued(self, event: Queued) -> None:
        priority = str(event.priority)
        self._left.values[priority, event.how] += 1
        if event.admitted:
            self._waited.values[priority,] += event.seconds
        if event.warm is not None:
            self._warm.values[str(event.warm).lower(),] += 1

    def _no_place(self, event: NoPlace) -> None:
        self._left.values[str(event.priority), "refused"] += 1

    def _limit(self, event: Limited) -> None:
        self._limited.values[event.kind,] += 1

    def _late(self, event: DeadlinePassed) -> None:
        self._deadlines.values[event.phase,] += 1
