"""What is counted where requests wait, are limited, or run out of time."""

from typing import Any

from router.events import DeadlinePassed, Limited, NoPlace, Queued
from router.observe.bus import Bus
from router.observe.pressure import Pressure


def counted(*events: Any) -> dict[str, dict[tuple[str, ...], float]]:
    bus = Bus()
    pressure = Pressure(bus)
    for event in events:
        bus.emit(event)
    return {counter.name.removeprefix("prefix_router_"): dict(counter.values) for counter in pressure.counters}


def test_how_requests_leave_the_room_by_their_priority() -> None:
    found = counted(
        Queued(2.0, True, -1, "admitted"),
        Queued(3.0, True, -1, "admitted"),
        Queued(9.0, False, 0, "expired"),
        NoPlace(4),
    )
    assert found["queue_left"] == {("-1", "admitted"): 2, ("0", "expired"): 1, ("4", "refused"): 1}
    assert found["queue_admitted_seconds"] == {("-1",): 5.0}
    assert found["warm_waits"] == {}


def test_whether_waiting_for_the_warm_worker_brought_it() -> None:
    found = counted(*[Queued(1.0, True, 0, "admitted", warm) for warm in (True, False, True)])
    assert found["warm_waits"] == {("true",): 2, ("false",): 1}


def test_rates_and_deadlines() -> None:
    found = counted(Limited("requests"), Limited("prompt_tokens"), Limited("requests"), DeadlinePassed("queued"))
    assert found["rate_limited"] == {("requests",): 2, ("prompt_tokens",): 1}
    assert found["deadlines_passed"] == {("queued",): 1}
