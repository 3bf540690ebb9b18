"""How fast a waiting room empties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.drain import HALF_LIFE, STALE, Drain


def drained(a_second: float, seconds: float, drain: Drain | None = None, start: float = 0.0) -> Drain:
    """Somebody waits all the time, and others leave at this pace."""
    drain = drain or Drain(start)
    drain.enter(start)
    for at in range(1, int(a_second * seconds) + 1):
        drain.enter(start + at / a_second)
        drain.leave(start + at / a_second, served=True)
    return drain


@pytest.mark.parametrize("pace", [0.5, 3.0, 200.0])
def test_the_pace_is_learnt(pace: float) -> None:
    assert drained(pace, 60.0).rate(60.0) == pytest.approx(pace, rel=0.1)
    assert drained(pace, 60.0).sure_rate(60.0) == pytest.approx(pace, rel=0.1)


def test_a_new_pace_counts_after_a_few_half_lives() -> None:
    drain = drained(10.0, 60.0)
    for at in range(1, 41):
        drain.enter(60.0 + at)
        drain.leave(60.0 + at, served=True)
    assert drain.rate(60.0 + 4 * HALF_LIFE) == pytest.approx(1.0, rel=0.7)


def test_before_anybody_left_nothing_is_known() -> None:
    drain = Drain(0.0)
    assert drain.rate(0.0) is None
    drain.enter(0.0)
    assert drain.rate(20.0) is None


def test_a_few_are_no_ground_to_send_anybody_away() -> None:
    drain = drained(1.0, 3.0)
    assert drain.rate(3.0) is not None
    assert drain.sure_rate(3.0) is None


def test_time_in_which_nobody_waits_does_not_count() -> None:
    drain = drained(10.0, 30.0)
    drain.leave(30.0, served=False)
    assert drain.rate(30.0 + STALE - 1) == pytest.approx(10.0, rel=0.1)
    drain.enter(30.0 + STALE - 1)
    assert drain.rate(30.0 + STALE - 1) == pytest.approx(10.0, rel=0.1)


def test_what_was_long_ago_is_forgotten() -> None:
    drain = drained(10.0, 30.0)
    drain.leave(30.0, served=False)
    assert drain.rate(31.0 + STALE) is None
    drain.enter(31.0 + STALE)
    assert drain.rate(31.0 + STALE) is None


def test_those_that_went_away_by_themselves_are_no_pace() -> None:
    drain = Drain(0.0)
    for at in range(20):
        drain.enter(at)
        drain.leave(at + 0.5, served=False)
    assert drain.rate(20.0) is None


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.booleans(), st.booleans()), max_size=50))
def test_a_pace_is_never_negative(steps: list[tuple[float, bool, bool]]) -> None:
    drain, now = Drain(0.0), 0.0
    for seconds, enters, served in steps:
        now += seconds
        if enters or not drain.waiting:
            drain.enter(now)
        else:
            drain.leave(now, served=served)
        rate = drain.rate(now)
        assert rate is None or rate > 0.0
