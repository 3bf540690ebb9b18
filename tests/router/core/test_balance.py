"""Orders by load alone."""

from hypothesis import given
from hypothesis import strategies as st

from router.core.balance import by_requests, by_work
from router.types import Reason
from tests.support.fleets import Look

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
