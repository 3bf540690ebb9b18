"""Choosing tokens: the distribution, the seed, and that guesses change neither."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from backends.medusa.sampling import Nucleus, Typical, distribution, logprobs_of

LOGITS = torch.tensor([1.0, 0.5, 3.0, 2.9, -1.0, 0.0, 2.0, -20.0])
CHI_SQUARE_LIMIT = {1: 10.8, 2: 13.8, 3: 16.3, 4: 18.5, 5: 20.5, 6: 22.5, 7: 24.3}  # exceeded by 1 in 1000

logits_of_any = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=12).map(torch.tensor)


def chi_square(drawn: list[int], chance: Tensor) -> tuple[float, int]:
    """The statistic and its degrees of freedom, over tokens that are to be expected at least five times."""
    expected = (chance * len(drawn)).tolist()
    common = [token for token, times in enumerate(expected) if times >= 5]
    statistic = sum((drawn.count(token) - expected[token]) ** 2 / expected[token] for token in common)
    return statistic, len(common) - 1


@given(logits_of_any, st.floats(0.05, 5), st.floats(0.01, 1))
def test_the_smallest_set_of_the_likeliest_tokens_that_reaches_top_p_is_left(
    logits: Tensor, temperature: float, top_p: float
) -> None:
    whole = (logits.double() / temperature).softmax(-1)
    found = distribution(logits, temperature, top_p).double()
    assert float(found.sum()) == pytest.approx(1, abs=1e-5)
    left, out = found > 0, found == 0
    if bool(out.any()):
        assert float(whole[left].min()) >= float(whole[out].max()) - 1e-6
    assert float(whole[left].sum()) >= top_p - 1e-5
    assert float(whole[left].sum() - whole[left].min()) <= top_p + 1e-5
    torch.testing.assert_close(found[left], whole[left] / whole[left].sum(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.999])
@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_a_large_vocabulary_is_cut_the_same_way_be_few_tokens_left_or_most(spread: float, top_p: float) -> None:
    logits = torch.randn(5000, generator=torch.Generator().manual_seed(1)) * spread
    whole = logits.softmax(-1)
    values, places = whole.sort(descending=True)
    count = 1 + int((values.cumsum(0) < top_p).sum())
    found = distribution(logits, 1.0, top_p)
    assert abs(int((found > 0).sum()) - count) <= 1  # a last bit of the sum
    torch.testing.assert_close(
        found[places[: count - 1]], values[: count - 1] / values[:count].sum(), atol=1e-6, rtol=1e-4
    )


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-9, 1e-3])
def test_the_coldest_temperature_is_greedy_and_no_error(temperature: float) -> None:
    assert distribution(LOGITS, temperature, 0.9).tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert Nucleus(temperature).choose(LOGITS, ()) == 2


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, 1.1), (math.nan, 1.0), (1.0, math.nan)]
)
def test_what_is_no_distribution_is_refused(temperature: float, top_p: float) -> None:
    with pytest.raises(ValueError, match="temperature must be above 0"):
        distribution(LOGITS, temperature, top_p)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.9), (2.0, 0.5)])
def test_draws_are_distributed_as_the_model_says(temperature: float, top_p: float) -> None:
    sampler = Nucleus(temperature, top_p, seed=3)
    chance = distribution(LOGITS, temperature, top_p)
    drawn = [sampler.choose(LOGITS, {2: 1, 0: 2}) for _ in range(4000)]
    statistic, degrees = chi_square(drawn, chance)
    assert statistic < CHI_SQUARE_LIMIT[degrees]
    assert all(chance[token] > 0 for token in set(drawn))


@given(st.sets(st.integers(0, 7)), st.integers(0, 2**63))
def test_guesses_change_nothing_of_what_a_seed_draws(guesses: set[int], seed: int) -> None:
    alone, helped = Nucleus(1.0, 0.95, seed), Nucleus(1.0, 0.95, seed)
    assert [alone.choose(LOGITS, ()) for _ in range(8)] == [helped.choose(LOGITS, guesses) for _ in range(8)]


def test_another_seed_draws_others_and_a_negative_one_is_a_seed_too() -> None:
    texts = [[Nucleus(2.0, seed=seed).choose(LOGITS, ()) for _ in range(1)] for seed in range(-20, 20)]
    assert len({tuple(text) for text in texts}) > 1


def test_typical_acceptance_changes_the_distribution() -> None:
    sampler = Typical(1.0, seed=3)
    chance = distribution(LOGITS, 1.0)
    statistic, degrees = chi_square([sampler.choose(LOGITS, {3: 1}) for _ in range(4000)], chance)
    assert statistic > 10 * CHI_SQUARE_LIMIT[degrees]


def test_typical_acceptance_without_a_guess_draws_as_the_model_says() -> None:
    typical, nucleus = Typical(1.0, seed=3), Nucleus(1.0, seed=3)
    assert [typical.choose(LOGITS, ()) for _ in range(50)] == [nucleus.choose(LOGITS, ()) for _ in range(50)]


def test_typical_acceptance_takes_the_likeliest_guess_above_its_bound_and_no_other() -> None:
    sampler = Typical(1.0, seed=3, epsilon=0.09, delta=0.3)
    chance = distribution(LOGITS, 1.0)
    entropy = -sum(p * math.log(p) for p in chance.tolist() if p > 0)
    bound = min(0.09, 0.3 * math.exp(-entropy))
    fair = {token for token, p in enumerate(chance.tolist()) if p > bound}
    assert {2, 3} <= fair
    assert 7 not in fair
    assert {sampler.choose(LOGITS, {3: 1, 2: 2, 7: 3}) for _ in range(50)} == {2}
    assert {sampler.choose(LOGITS, {7: 1}) for _ in range(200)} >= {2, 3, 6}


@given(logits_of_any, st.data())
def test_log_probabilities_are_the_models_with_the_likeliest_first(logits: Tensor, data: st.DataObject) -> None:
    token = data.draw(st.integers(0, len(logits) - 1))
    count = data.draw(st.integers(0, len(logits)))
    expected = logits.double().log_softmax(-1)
    found = logprobs_of(logits, token, count)
    assert found.token == token
    assert found.logprob == pytest.approx(float(expected[token]), abs=1e-4)
    assert [value for _, value in found.top] == sorted((value for _, value in found.top), reverse=True)
    assert [value for _, value in found.top] == pytest.approx(
        expected.sort(descending=True).values[:count].tolist(), abs=1e-4
    )
    assert len({place for place, _ in found.top}) == count
