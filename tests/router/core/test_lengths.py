"""How many bytes make a token: learnt, bounded, and never absurd."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.lengths import LEAST, MEMORY, MOST, MOST_KINDS, Lengths
from router.prompt import BYTES_A_TOKEN

KIND = ("m", False)

reports = st.lists(st.tuples(st.integers(0, 10**7), st.integers(-5, 10**7)), max_size=50)


def test_a_kind_that_nothing_was_reported_of_has_the_rule_of_thumb() -> None:
    assert Lengths().bytes_a_token(KIND) == BYTES_A_TOKEN


def test_what_is_reported_is_soon_believed() -> None:
    lengths = Lengths()
    for _ in range(5):
        lengths.learn(KIND, 5000, 2500)
    assert lengths.bytes_a_token(KIND) == pytest.approx(2.0, abs=0.1)


def test_one_short_prompt_changes_little_and_one_long_prompt_much() -> None:
    short, long = Lengths(), Lengths()
    short.learn(KIND, 16, 8)
    long.learn(KIND, 16_000, 8000)
    assert short.bytes_a_token(KIND) == pytest.approx(4.0, abs=0.2)
    assert long.bytes_a_token(KIND) == pytest.approx(2.0, abs=0.1)


def test_each_model_has_its_own_and_token_ids_too() -> None:
    lengths = Lengths()
    lengths.learn(("a", False), 20_000, 10_000)
    lengths.learn(("a", True), 15_000, 5000)
    assert lengths.bytes_a_token(("a", False)) < 2.1
    assert 2.9 < lengths.bytes_a_token(("a", True)) < 3.1
    assert lengths.bytes_a_token(("b", False)) == BYTES_A_TOKEN


@pytest.mark.parametrize(("length", "tokens"), [(100, 0), (100, -3), (0, 10), (100, 201), (100, 6), (10**7, 1)])
def test_what_is_no_text_is_not_learnt(length: int, tokens: int) -> None:
    """An image is few bytes of text and many tokens; nothing at all has no length."""
    lengths = Lengths()
    lengths.learn(KIND, length, tokens)
    assert lengths.bytes_a_token(KIND) == BYTES_A_TOKEN
    assert len(lengths) == 0


@given(reports)
def test_what_is_learnt_stays_within_bounds(reports: list[tuple[int, int]]) -> None:
    lengths = Lengths()
    for length, tokens in reports:
        lengths.learn(KIND, length, tokens)
        assert LEAST <= lengths.bytes_a_token(KIND) <= MOST


@given(st.integers(1, 10**6), st.floats(LEAST, MOST), st.integers(1, 60))
def test_it_never_overshoots_what_all_reports_agree_on(tokens: int, ratio: float, times: int) -> None:
    lengths, length = Lengths(), round(tokens * ratio)
    low, high = sorted((BYTES_A_TOKEN, length / tokens))
    for _ in range(times):
        lengths.learn(KIND, length, tokens)
        assert low - 1e-9 <= lengths.bytes_a_token(KIND) <= high + 1e-9


def test_a_model_whose_texts_change_is_learnt_anew() -> None:
    """Old reports fade, however many there were."""
    lengths = Lengths()
    for _ in range(1000):
        lengths.learn(KIND, 4000, 1000)
    for _ in range(int(3 * MEMORY / 1000)):
        lengths.learn(KIND, 2000, 1000)
    assert lengths.bytes_a_token(KIND) < 2.2


def test_models_without_end_do_not_fill_the_memory() -> None:
    lengths = Lengths()
    for at in range(10 * MOST_KINDS):
        lengths.learn((f"model {at}", False), 2000, 1000)
        assert len(lengths) <= MOST_KINDS
    assert lengths.bytes_a_token((f"model {10 * MOST_KINDS - 1}", False)) < 3.0
