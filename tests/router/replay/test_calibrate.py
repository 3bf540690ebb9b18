"""The scale that makes a load, and the load that a policy carries."""

import pytest

from router.replay.calibrate import CLOSE, capacity, scale_for


def test_a_load_in_proportion_is_found_at_once() -> None:
    tried: list[float] = []

    def measure(scale: float) -> float:
        tried.append(scale)
        return 0.2 * scale

    scale, reached = scale_for(0.5, measure)
    assert (scale, reached) == (pytest.approx(2.5), pytest.approx(0.5))
    assert len(tried) == 2


def test_a_load_that_bends_is_found_between() -> None:
    scale, reached = scale_for(0.7, lambda scale: scale**2 / (scale**2 + 4))
    assert abs(reached - 0.7) <= CLOSE
    assert scale > 1


def test_what_cannot_be_reached_gives_the_nearest() -> None:
    _, reached = scale_for(0.7, lambda scale: 0.3 * scale / (1 + scale))
    assert 0.15 < reached < 0.3


def test_an_idle_trace_does_not_divide_by_nothing() -> None:
    assert scale_for(0.5, lambda scale: 0.0)[1] == 0.0


@pytest.mark.parametrize(("most", "expected"), [(3.3, 3.25), (100.0, 7.875), (0.05, 0.0)])
def test_capacity_is_found_in_steps_of_an_eighth(most: float, expected: float) -> None:
    assert capacity(lambda scale: 1.0 if scale <= most else 0.5) == expected
