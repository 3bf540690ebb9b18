"""Workers that are eased in or out: they are less wanted for a while, and never unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.easing import HandOver, SlowStart
from router.core.load import Load
from router.types import Key
from tests.support.strategies import keys

KEY = Key(1, 64, 0)


class Loaded:
    """A worker that is nothing but its load."""

    def __init__(self, in_flight: int) -> None:
        self.load = Load()
        for _ in range(in_flight):
            self.load.charge(1.0, 0.0, streaming=True)


def admits(easing: SlowStart, own: int, others: list[int], now: float) -> bool:
    """Whether a worker with so many in flight takes another, among others with so many."""
    joined = Loaded(own)
    return easing.admits(joined.load, KEY, [joined, *(Loaded(each) for each in others)], now)


# Slow start.


@given(st.lists(st.integers(0, 20), max_size=5), st.floats(-10, 1e4), st.floats(0.1, 1e3))
def test_an_idle_worker_is_never_passed_over(others: list[int], now: float, seconds: float) -> None:
    assert admits(SlowStart(0.0, seconds), 0, others, now)


@given(st.integers(0, 30), st.lists(st.integers(0, 20), max_size=5), st.floats(0, 1e3))
def test_when_its_time_is_over_a_worker_takes_what_it_is_sent(own: int, others: list[int], after: float) -> None:
    easing = SlowStart(5.0, 10.0)
    assert easing.until == 15.0
    assert admits(easing, own, others, 15.0 + after)


@given(st.integers(0, 10), st.lists(st.integers(0, 12), max_size=4), st.lists(st.floats(0, 30), min_size=2, max_size=6))
def test_what_was_admitted_once_is_admitted_later(own: int, others: list[int], moments: list[float]) -> None:
    easing = SlowStart(0.0, 20.0)
    said = [admits(easing, own, others, moment) for moment in sorted(moments)]
    assert said == sorted(said)


def test_the_share_of_the_mean_grows_with_the_time() -> None:
    """Three workers with ten in flight each: at half time the new one may have half of the mean, itself counted."""
    easing = SlowStart(0.0, 20.0)
    assert not admits(easing, 1, [10, 10, 10], 0.0)
    mean = (3 + 30) / 4
    assert 0.5 * mean > 3
    assert admits(easing, 3, [10, 10, 10], 10.0)
    assert not admits(easing, 5, [10, 10, 10], 10.0)
    assert admits(easing, 5, [10, 10, 10], 19.0)


def test_a_worker_alone_takes_one_at_a_time_until_its_time_is_over() -> None:
    easing = SlowStart(0.0, 20.0)
    assert admits(easing, 0, [], 0.0)
    assert not admits(easing, 1, [], 1.0)


# Hand-over.


def gone(easing: HandOver, key: int, now: float) -> bool:
    return not easing.admits(Load(), Key(key, 64, 0), (), now)


@given(keys, st.lists(st.floats(0, 200), min_size=2, max_size=12))
def test_each_key_moves_once_and_never_comes_back(key: int, moments: list[float]) -> None:
    easing = HandOver(0.0, 100.0)
    moved = [gone(easing, key, moment) for moment in sorted(moments)]
    assert moved == sorted(moved)


@given(keys)
def test_at_its_beginning_no_key_has_moved_and_at_its_end_all_have(key: int) -> None:
    easing = HandOver(50.0, 100.0)
    assert not gone(easing, key, 50.0)
    assert gone(easing, key, easing.until)
    assert gone(easing, key, easing.until + 1e6)


@pytest.mark.parametrize("apart", [1, 2**20, 2**54])
def test_as_many_keys_have_moved_as_time_has_passed_though_they_be_neighbours(apart: int) -> None:
    easing = HandOver(0.0, 100.0)
    for passed in (10.0, 50.0, 90.0):
        moved = sum(gone(easing, key * apart, passed) for key in range(1000))
        assert moved == pytest.approx(10 * passed, abs=60)


@given(keys, st.floats(0, 100), st.integers(0, 9))
def test_whether_a_key_has_moved_hangs_on_the_key_and_the_time_alone(key: int, now: float, in_flight: int) -> None:
    one, other = HandOver(0.0, 100.0), HandOver(0.0, 100.0)
    busy = Loaded(in_flight)
    assert one.admits(busy.load, Key(key, 64, 0), [busy], now) == other.admits(Load(), Key(key, 512, 64), (), now)
