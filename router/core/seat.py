"""A known worker's place in the fleet."""

from __future__ import annotations

from router.core.easing import Ease
from router.core.health import TRIAL, Health, Thresholds
from router.core.load import Load
from router.types import Worker


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
