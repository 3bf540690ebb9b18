"""Ejections are counted by worker and cause."""

import pytest

from router.events import WorkerChanged, WorkerLeft
from router.observe.bus import Bus
from router.observe.ejections import Ejections
from router.types import WorkerState

READY, SUSPECT, DOWN, DRAINING = WorkerState.READY, WorkerState.SUSPECT, WorkerState.DOWN, WorkerState.DRAINING


def counted(*events: WorkerChanged | WorkerLeft) -> dict[tuple[str, ...], float]:
    bus = Bus()
    ejections = Ejections(bus)
    for event in events:
        bus.emit(event)
    return dict(ejections.count.values)


@pytest.mark.parametrize(
    ("cause", "shown"),
    [("stalled", "stalled"), ("error_share", "error_share"), ("slow", "slow"), ("status_500", "failures"),
     ("broken", "failures"), ("refused", "failures")],
)  # fmt: skip
def test_a_worker_taken_out_is_counted_under_its_cause(cause: str, shown: str) -> None:
    assert counted(WorkerChanged("w", SUSPECT, DOWN, cause)) == {("w", shown): 1}


def test_what_probes_find_and_what_is_no_ejection_is_not_counted() -> None:
    probe = WorkerChanged("w", SUSPECT, DOWN, "probe: ConnectError")
    suspected = WorkerChanged("w", READY, SUSPECT, "status_500")
    undrained = WorkerChanged("w", DRAINING, DOWN, "undrain")
    assert counted(probe, suspected, undrained) == {}


def test_the_series_of_a_worker_go_with_it() -> None:
    assert counted(WorkerChanged("w", READY, DOWN, "stalled"), WorkerLeft("w")) == {}
