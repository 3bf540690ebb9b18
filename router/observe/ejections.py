"""How often workers were taken out for what their requests said of them, by cause; probes are not counted here."""

from __future__ import annotations

from router.core.outliers import ERROR_SHARE, SLOW
from router.events import WorkerChanged, WorkerLeft
from router.observe.bus import Bus
from router.observe.series import Counter
from router.types import WorkerState

CAUSES = frozenset(("stalled", ERROR_SHARE, SLOW))
IN_A_ROW = "failures"


class Ejections:
    """Listens to the bus."""

    def __init__(self, bus: Bus) -> None:
        self.count = Counter("ejections", "Workers taken out, by cause", "worker", "cause")
        self.counters = [self.count]
        bus.on(WorkerChanged, self._changed)
        bus.on(WorkerLeft, lambda event: self.count.forget(event.worker))

    def _changed(self, event: WorkerChanged) -> None:
        if event.after is WorkerState.DOWN and not event.cause.startswith("probe") and event.before != "draining":
            self.count.values[event.worker, event.cause if event.cause in CAUSES else IN_A_ROW] += 1
