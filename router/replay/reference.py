"""The yardstick: a router that knows every worker's true cache and queue, which no real one does.

    cost(w) = seconds of prefill waiting at w + beta * seconds of this one's prefill there

beta = 1 is the greedy least time to first token; more also charges what repeated prefill and a second copy cost the
requests that follow. 2 carries most; the load of a replay is set with 4, which copies least.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.replay.item import Request
from router.replay.routing import Loads
from router.replay.workers import SimulatedWorker
from router.types import News

BETA, CALIBRATING_BETA = 2.0, 4.0
REASON = "reference"
EQUAL = 1e-9  # seconds


class Reference:
    def __init__(self, beta: float = BETA) -> None:
        self.beta = beta
        self._workers: list[SimulatedWorker] = []

    def members(self, workers: Sequence[SimulatedWorker], now: float) -> None:
        self._workers = list(workers)

    def send(self, request: Request, now: float) -> str:
        item = request.item
        best, low = self._workers[0], float("inf")
        for worker in self._workers:
            own = worker.prefill_seconds(item.tokens, worker.expected_hit(item))
            cost = worker.wait(now) + self.beta * own
            if cost < low - EQUAL:
                best, low = worker, cost
        request.reason = REASON
        return best.id

    def first_token(self, request: Request, now: float) -> None:
        """It looks at the workers themselves, so it notices nothing."""

    def finished(self, request: Request, now: float) -> None: ...
    def lost(self, request: Request, now: float) -> None: ...
    def look(self, workers: Sequence[SimulatedWorker], now: float, lasting: float) -> None: ...

    def news(self) -> list[News]:
        return []

    def loads(self, now: float) -> Loads:
        return []

    def hear(self, teller: str, news: Sequence[News], loads: Loads, until: float) -> None: ...
