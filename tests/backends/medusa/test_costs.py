"""What a step costs: the measured curve, and what is learned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.medusa.costs import OUTLIER, Costs, Curve

seconds = st.floats(1e-4, 10)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    tokens = sorted(draw(st.sets(st.integers(1, 300), min_size=2, max_size=8)))
    return Curve(tokens, draw(st.lists(seconds, min_size=len(tokens), max_size=len(tokens))))


@given(curves(), st.integers(1, 400), st.integers(0, 400))
def test_more_tokens_are_never_quicker(curve: Curve, tokens: int, more: int) -> None:
    assert 0 < curve.at(tokens) <= curve.at(tokens + more) * (1 + 1e-9)


@given(curves())
def test_the_curve_goes_through_its_points_as_far_as_they_rise(curve: Curve) -> None:
    assert [curve.at(tokens) for tokens in curve.tokens] == pytest.approx(curve.seconds)


def test_between_points_and_beyond_the_last_it_is_straight_and_before_the_first_level() -> None:
    curve = Curve((4, 8, 16), (1.0, 2.0, 6.0))
    assert [curve.at(tokens) for tokens in (1, 4, 6, 8, 12, 16, 20)] == [1.0, 1.0, 1.5, 2.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize(
    ("tokens", "times", "says"),
    [
        ((4,), (1.0,), "two points"),
        ((4, 4), (1.0, 2.0), "ascending"),
        ((8, 4), (1.0, 2.0), "ascending"),
        ((4, 8), (1.0,), "each of its points"),
        ((4, 8), (0.0, 1.0), "above 0"),
    ],
)
def test_points_that_are_no_measurement_are_refused(
    tokens: tuple[int, ...], times: tuple[float, ...], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        Curve(tokens, times)


def test_rows_and_context_come_on_top_of_the_curve() -> None:
    costs = Costs(Curve((1, 2), (1.0, 1.0)), per_row=0.1, per_seen=0.01)
    assert costs.step(2, 3, 10.0) == pytest.approx(1 + 0.2 + 0.3)


@given(curves(), st.integers(1, 16), st.integers(0, 40), st.floats(0.1, 20))
def test_a_machine_that_is_slower_or_quicker_than_measured_is_learned(
    curve: Curve, rows: int, nodes: int, factor: float
) -> None:
    """Even if it is so much slower that at first every step looks interrupted."""
    costs = Costs(curve, per_row=1e-3, per_seen=1e-6)
    true = factor * costs.step(rows, rows + nodes, 100.0)
    for _ in range(120):
        costs.learn(rows, rows + nodes, 100.0, true)
    assert costs.step(rows, rows + nodes, 100.0) == pytest.approx(true, rel=0.02)


def test_a_step_that_was_interrupted_says_little() -> None:
    costs = Costs(Curve((1, 8), (1.0, 1.0)))
    assert costs.learn(1, 4, 0.0, 50.0) == OUTLIER
    assert costs.step(1, 4, 0.0) == pytest.approx(1.1)


@pytest.mark.parametrize("stopped", [0.0, -1.0])
def test_a_clock_that_stands_still_teaches_nothing(stopped: float) -> None:
    costs = Costs(Curve((1, 8), (1.0, 1.0)))
    costs.learn(1, 4, 0.0, stopped)
    assert costs.step(1, 4, 0.0) == 1.0


def test_a_size_that_was_never_seen_takes_the_nearest_one_at_so_many_rows() -> None:
    costs = Costs(Curve((1, 64), (1.0, 1.0)))
    for _ in range(200):
        costs.learn(1, 4, 0.0, 1.5)
        costs.learn(1, 64, 0.0, 0.5)
    assert costs.step(1, 8, 0.0) == pytest.approx(1.5, rel=0.01)
    assert costs.step(1, 32, 0.0) == pytest.approx(0.5, rel=0.01)
    assert costs.step(2, 8, 0.0) == 1.0
