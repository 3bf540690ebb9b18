"""How far a source is believed: learned from what was verified."""

from math import isnan, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.medusa.candidates import HEADS, LOOKUP, Candidates
from backends.medusa.trust import LOOKUP_FIRST, LOOKUP_FURTHER, Trust


def one_step(trust: Trust, promised: float, right: bool) -> None:
    """One head, one guess."""
    tried = Candidates.after(0)
    tried.add(0, 1, trust.scored([1.0, promised], [0, 1])[1], HEADS)
    trust.learn(tried, [0, 1] if right else [0], 0)


@pytest.mark.parametrize(("promised", "true"), [(0.8, 0.5), (0.4, 0.5), (0.6, 0.6)])
def test_a_head_that_is_too_sure_or_too_modest_is_corrected(promised: float, true: float) -> None:
    trust, chance = Trust(), Random(1)
    for _ in range(3000):
        one_step(trust, promised, chance.random() < true)
    assert trust.scored([1.0, promised], [0, 1])[1] == pytest.approx(true, abs=0.1)


def test_a_lookup_learns_its_true_rates() -> None:
    trust, chance, rates = Trust(), Random(1), {2: 0.3, 3: 0.9}
    for step in range(4000):
        agreed = 2 + step % 2
        tried = Candidates.after(0)
        tried.add_chain([1, 2, 3], trust.first[agreed], trust.further)
        path = [0]
        while len(path) < 4 and chance.random() < (rates[agreed] if len(path) == 1 else 0.6):
            path.append(len(path))
        trust.learn(tried, path, agreed)
    assert trust.first == pytest.approx(rates, abs=0.1)
    assert trust.further == pytest.approx(0.6, abs=0.1)
    assert trust.factors == {}


def test_what_follows_a_wrong_guess_says_nothing() -> None:
    trust = Trust()
    tried = Candidates.after(0)
    tried.add_tree([-1, 0, 1, 2], [0, 1, 2, 3], [1.0, 0.9, 0.8, 0.7])
    trust.learn(tried, [0], 0)
    assert set(trust.factors) == {1}


def test_depths_are_corrected_apart_and_their_factors_multiply() -> None:
    trust = Trust(factors={1: 0.5, 2: 0.8})
    assert trust.scored([1.0, 0.9, 0.6, 0.5], [0, 1, 2, 3]) == pytest.approx([1.0, 0.45, 0.24, 0.2])


def test_a_guess_of_both_sources_teaches_only_the_one_that_was_surer() -> None:
    trust = Trust()
    tried = Candidates.after(0)
    tried.add(0, 1, 0.9, HEADS)
    tried.add(0, 1, 0.4, LOOKUP)
    trust.learn(tried, [0, 1], 2)
    assert set(trust.factors) == {1}
    assert trust.first == LOOKUP_FIRST


def test_a_chain_without_its_first_token_teaches_nothing_about_first_tokens() -> None:
    trust = Trust()
    tried = Candidates.after(0)
    tried.add(0, 1, 0.9, HEADS)
    tried.add(1, 2, 0.5, LOOKUP)
    trust.learn(tried, [0, 1], 2)
    assert trust.first == LOOKUP_FIRST
    assert trust.further < LOOKUP_FURTHER


def test_one_row_s_lesson_is_not_another_trust_s() -> None:
    trust = Trust()
    trust.first[2] = 0.0
    assert Trust().first == LOOKUP_FIRST


@given(st.lists(st.tuples(st.floats(0.0, 1), st.booleans()), max_size=300))
def test_whatever_happens_factors_and_scores_stay_in_their_bounds(steps: list[tuple[float, bool]]) -> None:
    trust = Trust()
    for promised, right in steps:
        one_step(trust, promised, right)
    assert all(0.2 <= factor <= 2.0 for factor in trust.factors.values())
    assert all(0 <= score <= 1 for score in trust.scored([1.0, 0.9, 1.0], [0, 1, 1]))


def test_what_is_no_number_is_not_made_one() -> None:
    assert isnan(Trust().scored([1.0, nan], [0, 1])[1])
