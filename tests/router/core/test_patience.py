"""Whether it pays to wait for a full worker that holds a prompt."""

from collections.abc import Mapping

import pytest

from router.core.choose import Choice
from router.core.fleet import Fleet
from router.core.health import PROBE_OK, REQUEST_FAILED
from router.core.patience import Hope, Patience
from router.types import Reason
from tests.support.fleets import ask_of, fleet_of, worker

TEXT = b"a prompt of many words " * 2000
PACE = 1000.0  # tokens a second: the whole prompt takes 11.5 s


def scene(*, stay: float | None = 2.0, pace: float | None = PACE, most: int = 2) -> tuple[Fleet, Patience]:
    """w0 is full, w1 has room; both compute as fast, and a request stays so long at w0."""
    fleet = fleet_of([worker("w0", max_in_flight=most), worker("w1")])
    for seat in fleet.seats.values():
        seat.load.pace = pace
    load = fleet.seats["w0"].load
    for _ in range(most):
        load.charge(1.0, 0.0, streaming=True).first_token(0.0)
    patience = Patience()
    if stay is not None:
        patience.stayed("w0", stay)
    return fleet, patience


def hope(
    fleet: Fleet, patience: Patience, held: float = 1.0, ahead: Mapping[str, int] | None = None, now: float = 100.0
) -> Hope | None:
    ask = ask_of(TEXT, held={"w0": int(held * len(TEXT))})
    choice = Choice(fleet.seats["w1"], Reason.SPILL, 0.0, ("w0",))
    return patience.hope(ask, choice, fleet.seats, ahead or {}, now)


def test_it_waits_when_a_place_comes_sooner_than_it_could_be_computed_elsewhere() -> None:
    fleet, patience = scene()
    found = hope(fleet, patience)
    assert found is not None
    assert found.worker == "w0"
    tokens = ask_of(TEXT).prefix.tokens
    assert found.until == pytest.approx(100.0 + 0.95 * tokens / PACE)


def test_it_takes_what_has_room_when_places_come_slowly() -> None:
    fleet, patience = scene(stay=60.0)
    assert hope(fleet, patience) is None


def test_or_when_too_many_wait_already() -> None:
    fleet, patience = scene()
    assert hope(fleet, patience, ahead={"w0": 5}) is not None
    assert hope(fleet, patience, ahead={"w0": 20}) is None


def test_or_when_little_of_it_is_held() -> None:
    fleet, patience = scene()
    assert hope(fleet, patience, held=0.3) is not None
    assert hope(fleet, patience, held=0.02) is None
    assert hope(fleet, patience, held=0.0) is None


@pytest.mark.parametrize("unknown", ["stay", "pace"])
def test_while_nothing_is_learnt_nobody_waits(unknown: str) -> None:
    fleet, patience = scene(**{unknown: None})
    assert hope(fleet, patience) is None


def test_a_worker_that_was_passed_over_for_another_cause_is_not_waited_for() -> None:
    fleet, patience = scene()
    fleet.seats["w0"].load.elsewhere = -1  # it has room, and is pressed or eased
    assert hope(fleet, patience) is None


def test_nor_is_one_that_asked_for_less_or_is_on_trial() -> None:
    fleet, patience = scene()
    fleet.seats["w0"].health.press(100.0, 5.0)
    assert hope(fleet, patience, now=101.0) is None
    assert hope(fleet, patience, now=200.0) is not None
    fleet, patience = scene(most=1)
    seat = fleet.seats["w0"]
    for _ in range(3):
        fleet.feed(seat, REQUEST_FAILED, 0.0)
    for _ in range(2):
        fleet.feed(seat, PROBE_OK, 90.0)
    assert seat.is_full()
    assert hope(fleet, patience) is None


def test_what_waits_at_the_other_worker_counts() -> None:
    fleet, patience = scene(stay=30.0)
    assert hope(fleet, patience) is None
    fleet.seats["w1"].load.charge(20_000.0, 100.0, streaming=True)
    assert hope(fleet, patience) is not None


def test_the_best_of_several_full_workers_is_waited_for() -> None:
    fleet = fleet_of([worker(name, max_in_flight=1) for name in ("w0", "w1", "w2")])
    patience = Patience()
    for name, stay in (("w0", 4.0), ("w1", 2.0)):
        fleet.seats[name].load.charge(1.0, 0.0, streaming=True).first_token(0.0)
        fleet.seats[name].load.pace = PACE
        patience.stayed(name, stay)
    ask = ask_of(TEXT, held={"w0": len(TEXT), "w1": len(TEXT)})
    choice = Choice(fleet.seats["w2"], Reason.SPILL, 0.0, ("w0", "w1", "gone"))
    found = patience.hope(ask, choice, fleet.seats, {}, 0.0)
    assert found is not None
    assert found.worker == "w1"


def test_how_long_requests_stay_is_a_mean_that_follows_and_may_be_forgotten() -> None:
    fleet, patience = scene(stay=60.0)
    for _ in range(60):
        patience.stayed("w0", 1.0)
    assert hope(fleet, patience) is not None
    patience.forget("w0")
    patience.forget("w0")
    assert hope(fleet, patience) is None
