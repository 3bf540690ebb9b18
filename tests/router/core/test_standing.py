"""How workers stand against each other, kept while their books change."""

from random import Random

import pytest

from router.core.seat import Seat
from router.core.standing import Standing
from tests.support import plain_rule
from tests.support.churn import Churn
from tests.support.fleets import fleet_of, worker

STEPS = 400


def standing_of(churn: Churn) -> Standing:
    return churn.fleet.candidates(None).standing


@pytest.mark.parametrize("even", [True, False], ids=["alike", "mixed"])
def test_a_worker_s_wait_is_never_below_its_floor_until_its_books_change(even: bool) -> None:
    churn = Churn(Random(2), 5, even=even)
    for _ in range(STEPS):
        churn.step()
        for seat in churn.fleet.seats.values():
            for later in (0.0, 0.02, 0.3, 2.0, 70.0):
                wait = plain_rule.wait(seat.load, churn.now + later)
                assert seat.load.floor() <= wait
                assert seat.load.line(churn.now + later) <= wait + 1e-6


def test_a_worker_s_wait_is_what_its_books_say_told_plainly() -> None:
    churn = Churn(Random(3), 5, even=False)
    for _ in range(STEPS):
        churn.step()
        for seat in churn.fleet.seats.values():
            assert seat.wait(churn.now) == plain_rule.wait(seat.load, churn.now)


@pytest.mark.parametrize("even", [True, False], ids=["alike", "mixed"])
@pytest.mark.parametrize(("base", "slope"), [(0.0, 0.3), (4000.0, 0.0), (4000.0, 0.1), (0.0, 0.0)])
def test_whoever_is_still_to_come_costs_no_less_than_the_number_that_comes_with_each(
    even: bool, base: float, slope: float
) -> None:
    churn = Churn(Random(4), 25, even=even)
    for _ in range(STEPS // 4):
        churn.step()
        rising = list(standing_of(churn).rising(base, slope, churn.now))
        costs = [(seat.wait(churn.now) + base + slope * seat.load.traffic) / seat.speed for _, seat in rising]
        assert sorted(seat.id for _, seat in rising) == [seat.id for seat in churn.fleet.candidates(None)]
        for at, (bound, _) in enumerate(rising):
            assert bound <= min(costs[at:])
            assert bound >= rising[max(at - 1, 0)][0]


def test_of_idle_workers_the_first_few_say_all_and_the_bound_is_close() -> None:
    fleet = fleet_of(100)
    for at, seat in enumerate(fleet.seats.values()):
        seat.load.carry(1000.0 + at)
    rising = fleet.candidates(None).standing.rising(0.0, 1.0, 0.0)
    assert [round(next(rising)[0]) for _ in range(3)] == [1000, 1001, 1002]


def test_the_sum_of_the_traffic_follows_every_prompt_and_every_halving() -> None:
    churn = Churn(Random(5), 10, even=False)
    for _ in range(STEPS):
        churn.step()
        seats = churn.fleet.candidates(None)
        assert seats.standing.traffic == pytest.approx(sum(seat.load.traffic for seat in seats))


def test_the_mean_wait_is_never_less_than_is_said() -> None:
    churn = Churn(Random(6), 10, even=False)
    for _ in range(STEPS):
        churn.step()
        seats = churn.fleet.candidates(None)
        if seats:
            mean = sum(seat.wait(churn.now) for seat in seats) / len(seats)
            assert 0.0 <= seats.standing.least_mean_wait() <= mean


def test_the_best_pace_is_the_highest_that_is_known_now() -> None:
    churn = Churn(Random(7), 4, even=False)
    assert standing_of(churn).best_pace() is None
    for _ in range(STEPS):
        churn.step()
        paces = [seat.load.pace for seat in churn.fleet.candidates(None) if seat.load.pace is not None]
        assert standing_of(churn).best_pace() == max(paces, default=None)


def test_workers_are_known_by_name_and_so_are_the_fastest_and_the_slowest() -> None:
    fleet = fleet_of([worker("a", weight=2.0), worker("b"), worker("c", weight=0.5)])
    standing = fleet.candidates(None).standing
    assert standing.by_id == fleet.seats
    assert (standing.count, standing.fastest, standing.slowest) == (3, 2.0, 0.5)


def test_one_that_is_dissolved_is_told_of_nothing_any_more() -> None:
    fleet = fleet_of(3)
    standing = fleet.candidates(None).standing
    for order in (standing.by_work(), standing.by_requests(), standing.by_traffic()):
        assert order.rows()
    load = next(iter(fleet.seats.values())).load
    assert (len(load.readers), len(load.late)) == (1, 3)
    standing.dissolve()
    assert (load.readers, load.late) == ([], [])


def test_an_order_that_nobody_asks_for_any_more_is_given_up() -> None:
    fleet = fleet_of(3)
    standing = fleet.candidates(None).standing
    standing.by_work().rows()
    load = next(iter(fleet.seats.values())).load
    standing.recount()
    assert len(load.late) == 1
    standing.recount()
    assert load.late == []
    assert len(standing.by_work().rows()) == 3


def test_nobody_stands_nowhere() -> None:
    seats: list[Seat] = []
    standing = Standing(seats)
    assert (standing.count, standing.traffic, standing.by_id) == (0, 0.0, {})
