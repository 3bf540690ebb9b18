"""Workers' speeds against each other, learnt or configured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.speed import LEAST_SPEED, MOST_SPEED, set_speeds
from tests.support.fleets import Look

paces = st.none() | st.floats(1.0, 1e6)


def speeds(*paces: float | None, weights: tuple[float, ...] = ()) -> list[float]:
    seats = [
        Look(f"w{at}", pace=pace, weight=weights[at] if weights else 1.0, speed=77.0) for at, pace in enumerate(paces)
    ]
    set_speeds(seats)  # type: ignore[arg-type]
    return [seat.speed for seat in seats]


@given(st.floats(1.0, 1e6), st.integers(0, 12))
def test_workers_of_one_pace_have_one_speed(pace: float, count: int) -> None:
    assert speeds(*[pace] * count) == [1.0] * count


def test_differences_within_a_quarter_are_noise() -> None:
    assert speeds(1000.0, 1000.0, 1000.0, 760.0, 1300.0) == [1.0] * 5


def test_a_worker_half_as_fast_has_half_the_speed() -> None:
    assert speeds(1000.0, 1000.0, 1000.0, 500.0) == pytest.approx([1.0, 1.0, 1.0, 0.5])
    assert speeds(1000.0, 1040.0, 980.0, 500.0)[3] == pytest.approx(0.5, abs=0.03)


def test_a_worker_twice_as_fast_has_twice_the_speed() -> None:
    assert speeds(1000.0, 1000.0, 2000.0) == pytest.approx([1.0, 1.0, 2.0])


def test_a_worker_of_unknown_pace_is_as_fast_as_most() -> None:
    assert speeds(1000.0, None, 1000.0, 500.0) == pytest.approx([1.0, 1.0, 1.0, 0.5])


@given(st.lists(paces, max_size=8), st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=8, max_size=8))
def test_configured_weights_win(paces: list[float | None], weights: list[float]) -> None:
    """Where they differ, nothing that was learnt changes them."""
    given_weights = tuple(weights[: len(paces)])
    if len(set(given_weights)) > 1:
        assert speeds(*paces, weights=given_weights) == list(given_weights)


def test_weights_that_are_all_alike_say_nothing() -> None:
    assert speeds(1000.0, 1000.0, 500.0, weights=(2.0, 2.0, 2.0)) == pytest.approx([2.0, 2.0, 1.0])


@given(st.lists(paces, max_size=8))
def test_no_speed_is_beyond_its_bounds(paces: list[float | None]) -> None:
    assert all(LEAST_SPEED <= speed <= MOST_SPEED for speed in speeds(*paces))


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=8))
def test_who_is_faster_is_never_held_to_be_slower(paces: list[float]) -> None:
    found = [speed for _, speed in sorted(zip(paces, speeds(*paces), strict=True))]
    by_pace = sorted(range(len(paces)), key=lambda at: paces[at])
    said = speeds(*paces)
    assert [said[at] for at in by_pace] == sorted(found)


def test_a_pace_of_nothing_divides_nothing() -> None:
    assert speeds(0.0, 0.0) == [1.0, 1.0]
    assert speeds() == []
