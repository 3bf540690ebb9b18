"""How far a draft goes: as far as a further level is worth its time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.medusa.drafting import Draft
from backends.medusa.reach import HOPE, LARGEST_FLOOR, SMALLEST_FLOOR, Reach


def drafted(levels: int) -> Draft:
    return Draft([[0]], [[1.0]], levels)


def test_at_first_it_goes_all_the_way() -> None:
    assert (Reach().floor, Reach().worth) == (SMALLEST_FLOOR, 0.0)


def test_a_level_has_to_bring_as_many_tokens_as_its_time_does_otherwise() -> None:
    """Three levels in 6 ms, 100 tokens a second: a level takes the time of 0.2 tokens."""
    reach = Reach()
    reach.learn(drafted(3), 0.006, 100.0, 0.1)
    assert reach.worth * HOPE == pytest.approx(0.2)


def test_what_it_learned_fades() -> None:
    reach = Reach()
    reach.learn(drafted(1), 1.0, 1.0, 0.1)
    for _ in range(100):
        reach.learn(drafted(2), 0.004, 50.0, 0.1)
    assert reach.worth == pytest.approx(0.1 / HOPE, rel=0.02)


@given(st.floats(0, 1))
def test_the_floor_is_half_of_what_was_still_worth_verifying_within_limits(least: float) -> None:
    reach = Reach()
    reach.learn(drafted(1), 0.001, 50.0, least)
    assert reach.floor == min(max(least / 2, SMALLEST_FLOOR), LARGEST_FLOOR)


def test_a_draft_without_levels_is_no_division_by_zero() -> None:
    reach = Reach()
    reach.learn(drafted(0), 0.001, 50.0, 1.0)
    assert reach.level_seconds == 0.001
