"""Orders by load alone."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.balance import by_requests, by_work
from router.core.fleet import Fleet
from router.core.standing import SMALL
from router.types import Reason
from tests.support import plain_rule
from tests.support.churn import Churn
from tests.support.fleets import Look, fleet_of

looks = st.lists(
    st.builds(
        Look,
        st.sampled_from([f"w{at}" for at in range(12)]),
        weight=st.sampled_from([0.5, 1.0, 2.0]),
        in_flight=st.integers(0, 5),
        traffic=st.floats(0, 1e6),
        waiting=st.floats(0, 1e6),
    ),
    max_size=12,
    unique_by=lambda look: look.id,
)


def order(ranked: object) -> list[str]:
    return [each.worker for each in ranked]  # type: ignore[attr-defined]


def test_the_least_waiting_tokens_come_first() -> None:
    looks = [Look("a", waiting=5), Look("b", waiting=1), Look("c", waiting=3)]
    assert order(by_work(looks, 0.0)) == ["b", "c", "a"]


def test_of_equal_waits_the_fewer_requests_and_then_the_less_recent_traffic_come_first() -> None:
    looks = [Look("a", in_flight=1), Look("b", traffic=5.0), Look("c", traffic=1.0), Look("d", traffic=1.0)]
    assert order(by_work(looks, 0.0)) == ["c", "d", "b", "a"]


def test_the_fewest_requests_come_first() -> None:
    looks = [Look("a", in_flight=2, waiting=0), Look("b", in_flight=1, waiting=9), Look("c", in_flight=1, traffic=1.0)]
    assert order(by_requests(looks)) == ["b", "c", "a"]


def test_twice_the_weight_bears_twice_the_load() -> None:
    looks = [Look("big", weight=2.0, in_flight=3, waiting=300), Look("one", in_flight=2, waiting=200)]
    assert order(by_work(looks, 0.0)) == ["big", "one"]
    assert order(by_requests(looks)) == ["big", "one"]


def test_the_reason_is_load_unless_told_otherwise() -> None:
    assert {each.reason for each in by_work([Look("a")], 0.0)} == {Reason.LOAD}
    assert {each.reason for each in by_requests([Look("a")], Reason.SPILL)} == {Reason.SPILL}


def test_with_nobody_there_is_no_order() -> None:
    assert order(by_work([], 0.0)) == order(by_requests([])) == []


@given(looks, st.randoms(use_true_random=False))
def test_the_order_of_the_candidates_never_matters(looks: list[Look], dice: object) -> None:
    shuffled = list(looks)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert list(by_work(looks, 0.0)) == list(by_work(shuffled, 0.0))
    assert list(by_requests(looks)) == list(by_requests(shuffled))


@given(looks)
def test_costs_never_fall_along_the_order_and_each_comes_once(looks: list[Look]) -> None:
    for ranked in (list(by_work(looks, 0.0)), list(by_requests(looks))):
        costs = [each.cost for each in ranked]
        assert costs == sorted(costs)
        assert sorted(each.worker for each in ranked) == sorted(look.id for look in looks)


@pytest.mark.parametrize("workers", [3, SMALL, SMALL + 1, 50])
def test_whatever_happens_to_a_fleet_the_orders_are_those_of_sorting_all(workers: int) -> None:
    churn = Churn(Random(workers), workers, even=False)
    for _ in range(300):
        churn.step()
        candidates = churn.fleet.candidates(None)
        assert list(by_work(candidates, churn.now)) == plain_rule.by_work(candidates, churn.now)
        assert list(by_requests(candidates)) == plain_rule.by_requests(candidates)


def test_an_order_that_is_left_for_a_while_still_names_each_once() -> None:
    fleet = fleet_of(SMALL + 1)
    by_load = by_requests(fleet.candidates(None))
    names = [next(by_load).worker]
    fleet.seats["w5"].load.charge(1.0, 0.0, streaming=True)
    fleet.seats[names[0]].load.charge(1.0, 0.0, streaming=True)
    names += order(by_load)
    assert sorted(names) == sorted(fleet.seats)


def busy(dice: Random, *, alike: bool) -> Fleet:
    """Sixty workers of known paces, all with something waiting since some moment."""
    fleet = fleet_of(60)
    for seat in fleet.seats.values():
        seat.load.learn_pace(10_000.0 if alike else float(dice.randrange(5000, 20_000)), 1.0)
        for _ in range(1 if alike else dice.randrange(1, 3)):
            seat.load.charge(500.0 if alike else float(dice.randrange(400, 600)), 0.0, streaming=True)
        for _ in range(0 if alike else dice.randrange(3)):
            seat.load.carry(100.0)
    return fleet


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_of_workers_that_are_all_busy_the_first_is_that_of_sorting_all_at_any_moment(alike: bool, seed: int) -> None:
    dice = Random(seed)
    fleet = busy(dice, alike=alike)
    for at in range(150):
        now = at * 0.001
        candidates = fleet.candidates(None)
        assert list(by_work(candidates, now)) == plain_rule.by_work(candidates, now)
        if dice.random() < 0.3:
            dice.choice(candidates).load.charge(100.0, now, streaming=True)
        if dice.random() < 0.3:
            dice.choice(candidates).load.carry(100.0)


def test_of_workers_that_are_all_alike_few_are_looked_at() -> None:
    """Neither while all fall at one pace nor when none can fall any further."""
    fleet, asked = busy(Random(1), alike=True), []
    for seat in fleet.seats.values():
        seat.wait = lambda now, load=seat.load: asked.append(load) or load.wait(now)  # type: ignore[misc]
    for at in range(100):
        next(by_work(fleet.candidates(None), at * 0.001))
    assert len(asked) < 100 * 15
