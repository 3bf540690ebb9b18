"""The mock's words."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.contract import TokenLogprob
from backends.mock.prose import IDS, NEWLINE, PIECES, Prose, logprob_of
from backends.mock.tokenizer import MARKERS, MockTokenizer

TOKENIZER = MockTokenizer()


def test_every_piece_is_exactly_one_token() -> None:
    assert all(len(piece) == 4 and TOKENIZER.encode(piece) == [token] for piece, token in zip(PIECES, IDS, strict=True))


def test_the_same_seed_and_prompt_say_the_same() -> None:
    assert Prose(1, [5, 6]).take(9) == Prose(1, [5, 6]).take(9)
    assert Prose(1, [5, 6]).take(9) != Prose(2, [5, 6]).take(9)
    assert Prose(1, [5, 6]).take(9) != Prose(1, [5, 7]).take(9)


def test_taking_in_parts_says_the_same() -> None:
    whole, parts = Prose(1, [5]), Prose(1, [5])
    assert whole.take(5)[1] == parts.take(2)[1] + parts.take(3)[1]


@given(st.text(min_size=1), st.integers(0, 9))
def test_prompt_and_answer_as_one_text_have_the_same_ids(prompt: str, count: int) -> None:
    """For plain completions: sending prompt plus answer back hits both."""
    ids = TOKENIZER.encode(prompt)
    said, texts = Prose(0, ids).take(count)
    assert TOKENIZER.encode(prompt + "".join(texts)) == ids + said


def test_in_a_chat_the_answer_begins_at_once() -> None:
    assert Prose(0, [MARKERS["assistant"]]).take(1)[1] != ["\n"]


@given(st.text(min_size=1), st.integers(0, 5), st.integers(1, 30), st.integers(0, 9))
def test_it_goes_on_with_its_own_words(prompt: str, seed: int, said: int, more: int) -> None:
    ids = TOKENIZER.encode(prompt)
    if Prose(seed, ids).spoken:
        return  # the prompt itself happens to be such
    whole = Prose(seed, ids).take(said + more)[0]
    rest = Prose(seed, ids + whole[:said])
    assert rest.spoken == said
    assert rest.take(more)[0] == whole[said:]


@given(st.integers(1, 30), st.integers(0, 29))
def test_words_that_are_not_its_own_are_a_prompt_like_any_other(said: int, wrong: int) -> None:
    ids = [*TOKENIZER.encode("Tell me"), *Prose(0, TOKENIZER.encode("Tell me")).take(said)[0]]
    at = len(ids) - 1 - wrong % said
    ids[at] = IDS[1] if ids[at] == IDS[0] else IDS[0]
    assert Prose(0, ids).spoken == 0


def test_in_a_chat_it_goes_on_after_the_marker() -> None:
    ids = [MARKERS["assistant"]]
    whole = Prose(0, ids).take(9)[0]
    assert Prose(0, ids + whole[:4]).take(5)[0] == whole[4:]


def test_log_probabilities_are_those_of_the_dice() -> None:
    """A line that must be opened is certain; of the pieces each is as likely as another."""
    assert logprob_of(NEWLINE, 2).top == ((NEWLINE, 0.0),)
    every = logprob_of(IDS[5], len(IDS))
    assert sum(math.exp(logprob) for _, logprob in every.top) == pytest.approx(1)
    assert len(dict(every.top)) == len(PIECES)
    assert logprob_of(IDS[5], 0).top == []
    assert logprob_of(NEWLINE, 0) == TokenLogprob(NEWLINE, 0.0, ())
