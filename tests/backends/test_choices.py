"""Sequences as choices: stop strings, and the tokens that stand by each text."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.choices import Choice, Scored
from backends.contract import End, TokenLogprob, Usage
from backends.stops import Stops


class Handle:
    def __init__(self) -> None:
        self.aborts = 0

    def abort(self) -> None:
        self.aborts += 1


class Noting:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.scored: list[Sequence[Scored]] = []
        self.ends: list[tuple[int, End, str | None]] = []

    def open(self) -> None: ...

    def prefilled(self, index: int, usage: Usage) -> None: ...

    def write(self, index: int, texts: Sequence[str], scored: Any) -> None:
        assert texts
        self.texts.extend(texts)
        if scored is not None:
            assert len(scored) == len(texts)
            self.scored.extend(scored)

    def close(self, index: int, end: End, stop: str | None) -> None:
        self.ends.append((index, end, stop))

    def fail(self) -> None:
        self.texts.append("failed")


def told(batches: Sequence[Sequence[str]], stops: Sequence[str] = (), *, scores: bool = False) -> tuple[Noting, Handle]:
    """What a listener hears of these batches of tokens, as an engine tells them: nothing more after an abort."""
    listener, sequence = Noting(), Handle()
    choice = Choice(7, listener, stops)
    choice.sequence = sequence
    choice.prefilled(Usage(10, 0, 3))
    number = 0
    for batch in batches:
        if sequence.aborts:
            break
        entries = [TokenLogprob(number + place, -0.5) for place in range(len(batch))]
        number += len(batch)
        choice.tokens(batch, entries if scores else None)
    if not sequence.aborts:
        choice.finished(End("length", Usage(10, number, 3)))
    return listener, sequence


def test_without_stop_strings_every_text_passes_but_empty_ones() -> None:
    listener, sequence = told([["a", "", "b"], ["c"]])
    assert listener.texts == ["a", "b", "c"]
    assert listener.ends == [(7, End("length", Usage(10, 4, 3)), None)]
    assert sequence.aborts == 0


def test_a_stop_string_aborts_the_sequence_and_counts_what_was_generated() -> None:
    """The tokens after it came in the same step and are nobody's."""
    listener, sequence = told([["a", "b\n"], ["\nc", "d", "e"]], ["\n\n"])
    assert listener.texts == ["a", "b"]
    assert listener.ends == [(7, End("stop", Usage(10, 3, 3)), "\n\n")]
    assert sequence.aborts == 1


def test_what_was_held_back_comes_when_the_answer_ends_by_itself() -> None:
    listener, _ = told([["a\n"]], ["\n\n"])
    assert listener.texts == ["a", "\n"]


def test_a_token_stands_by_the_text_that_begins_with_it() -> None:
    """A character of two tokens comes with both; what never became a character stands by an empty text."""
    listener, _ = told([["a", "", "é", "b"], [""]], scores=True)
    assert listener.texts == ["a", "é", "b", ""]
    assert [[each.token.token_id for each in some] for some in listener.scored] == [[0], [1, 2], [3], [4]]
    assert [each.start for some in listener.scored for each in some] == [0, 1, 1, 2, 3]


def test_tokens_of_the_stop_string_do_not_stand_by_the_answer() -> None:
    listener, _ = told([["ab", "c<", "en", "d>", "x"]], ["<end>"], scores=True)
    assert listener.texts == ["ab", "c"]
    assert [[each.token.token_id for each in some] for some in listener.scored] == [[0], [1]]


pieces = st.lists(st.text("ab<>", max_size=3), max_size=12)


@pytest.mark.parametrize("scores", [False, True])
@given(st.data(), pieces, st.lists(st.text("ab<>", min_size=1, max_size=4), max_size=3))
def test_however_the_tokens_come_the_answer_and_its_count_are_the_same(
    scores: bool, data: Any, tokens: list[str], stops: list[str]
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(tokens)))))
    batches = [tokens[low:high] for low, high in zip([0, *cuts], [*cuts, len(tokens)], strict=True)]
    listener, sequence = told(batches, stops, scores=scores)
    alone, _ = told([[token] for token in tokens], stops, scores=scores)
    assert "".join(listener.texts) == "".join(alone.texts)
    assert listener.ends == alone.ends
    assert len(listener.ends) == 1
    found = Stops(stops)
    found.feed("".join(tokens))
    assert listener.ends[0][2] == found.found
    assert sequence.aborts == (found.found is not None)


@given(pieces, st.lists(st.text("ab<>", min_size=1, max_size=4), max_size=3))
def test_the_tokens_shown_are_those_that_begin_in_the_answer(tokens: list[str], stops: list[str]) -> None:
    listener, sequence = told([tokens], stops, scores=True)
    starts = [0, *accumulate(map(len, tokens))][: len(tokens)]
    length = len("".join(listener.texts))
    shown = [each for some in listener.scored for each in some]
    assert [each.token.token_id for each in shown] == list(range(len(shown)))
    assert [each.start for each in shown] == [start for start in starts if start < length or not sequence.aborts]


def test_a_sequence_that_fails_fails_the_answer() -> None:
    listener = Noting()
    Choice(0, listener, []).failed()
    assert listener.texts == ["failed"]
    assert listener.ends == []
