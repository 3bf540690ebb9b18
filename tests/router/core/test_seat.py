"""A known worker's place."""

import pytest

from router.core.health import Thresholds
from router.core.seat import Seat
from router.types import WorkerState
from tests.support.fleets import worker


def test_a_new_seat_has_nothing_and_is_not_ready() -> None:
    seat = Seat(worker("w0", weight=2.0), Thresholds())
    assert (seat.id, seat.weight, seat.speed, seat.load.in_flight) == ("w0", 2.0, 2.0, 0)
    assert seat.health.state is WorkerState.STARTING
    assert seat.wait(0.0) == 0.0
    assert repr(seat) == "<Seat w0 starting, 0 in flight>"


@pytest.mark.parametrize(("configured", "discovered", "serves"), [
    (None, None, {"x", "y"}), (("x",), None, {"x"}), (None, frozenset({"y"}), {"y"}), (("x",), frozenset({"y"}), {"x"}),
])  # fmt: skip
def test_configured_models_count_more_than_published_ones(
    configured: tuple[str, ...] | None, discovered: frozenset[str] | None, serves: set[str]
) -> None:
    seat = Seat(worker("w0", models=configured), Thresholds())
    seat.learn(seat.worker, discovered)
    assert {model for model in ("x", "y") if seat.serves(model)} == serves
    assert seat.serves(None)


def test_a_seat_is_full_of_what_all_processes_have_in_flight_there() -> None:
    seat = Seat(worker("w0", max_in_flight=2), Thresholds())
    seat.load.charge(1.0, 0.0, streaming=True)
    assert not seat.is_full()
    seat.load.hear_siblings(1, 0, 0.0)
    assert seat.is_full()


def test_a_worker_that_names_no_limit_has_the_usual_one() -> None:
    seat = Seat(worker("w0"), Thresholds())
    assert (seat.most, seat.is_full()) == (None, False)
    seat.usual_most = 3
    seat.limit()
    assert seat.most == 3
