"""The cost model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.mock.timing import CostModel

speeds = st.floats(0.1, 1e6)
scales = st.floats(0, 100)


def test_prefill_costs_the_uncached_tokens() -> None:
    assert CostModel(prefill_tokens_per_second=100).prefill_seconds(50) == pytest.approx(0.5)
    assert CostModel().prefill_seconds(0) == 0


def test_sixty_four_sequences_are_each_slower_and_together_much_faster() -> None:
    """The numbers that the module promises."""
    cost = CostModel(decode_tokens_per_second=60)
    share = cost.step_seconds(1) / cost.step_seconds(64)
    assert share == pytest.approx(0.61, abs=0.01)
    assert 64 * share == pytest.approx(39, abs=0.5)


@given(speeds, speeds, scales, st.integers(0, 10**6), st.integers(1, 1000))
def test_all_times_are_scaled_and_never_negative(
    prefill: float, decode: float, scale: float, tokens: int, running: int
) -> None:
    cost = CostModel(prefill_tokens_per_second=prefill, decode_tokens_per_second=decode, time_scale=scale)
    plain = CostModel(prefill_tokens_per_second=prefill, decode_tokens_per_second=decode)
    assert cost.prefill_seconds(tokens) == pytest.approx(scale * plain.prefill_seconds(tokens))
    assert cost.step_seconds(running) == pytest.approx(scale * plain.step_seconds(running))
    assert cost.step_seconds(running) >= 0


@given(st.integers(1, 1000))
def test_one_more_sequence_slows_each_but_speeds_up_all(running: int) -> None:
    cost = CostModel()
    assert cost.step_seconds(running + 1) > cost.step_seconds(running)
    assert (running + 1) / cost.step_seconds(running + 1) > running / cost.step_seconds(running)
