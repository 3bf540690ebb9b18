"""The learning rate over a run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.train_heads.recipe import LEAST_RATE, Recipe, rate_at


@given(st.integers(1, 500), st.integers(0, 600), st.floats(1e-5, 1))
def test_the_rate_rises_to_its_peak_and_then_falls(steps: int, warm_up: int, peak: float) -> None:
    recipe = Recipe(steps=steps, warm_up=warm_up, rate=peak)
    rates = [rate_at(step, recipe) for step in range(steps)]
    assert all(0 < rate <= peak * (1 + 1e-9) for rate in rates)
    assert rates[:warm_up] == sorted(rates[:warm_up])
    assert rates[warm_up:] == sorted(rates[warm_up:], reverse=True)


def test_it_ends_at_a_thirtieth_of_the_peak() -> None:
    recipe = Recipe(steps=10_000)
    assert rate_at(recipe.warm_up, recipe) == pytest.approx(recipe.rate)
    assert rate_at(9_999, recipe) == pytest.approx(LEAST_RATE * recipe.rate, rel=1e-3)
