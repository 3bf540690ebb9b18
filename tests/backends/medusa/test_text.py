"""Tokens to text, one after the other."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.medusa.text import Detokenizer
from tests.support.tiny_worker import bytewise

HALF = ("", "\ufffd", "\ufffd\ufffd")
"""How the whole decoding shows an incomplete character at the end; bytes of a surrogate's half count one by one."""


def fed(tokens: list[int], token_bytes: Callable[[int], bytes], hidden: Any = ()) -> list[str]:
    text = Detokenizer(token_bytes, hidden)
    return [text.feed(token) for token in tokens]


@given(st.text(), st.lists(st.integers(1, 5), min_size=1))
def test_a_text_comes_out_as_it_was_wherever_it_is_cut(text: str, sizes: list[int]) -> None:
    """And no piece is half a character: each piece is text of its own."""
    raw, pieces = text.encode(), []
    while raw:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(raw[:size])
        raw = raw[size:]
    out = fed(list(range(len(pieces))), pieces.__getitem__)
    assert "".join(out) == text
    assert len(out) == len(pieces)


@given(st.lists(st.integers(0, 258)))
def test_any_tokens_give_what_decoding_them_together_gives_but_for_half_a_character_at_the_end(ids: list[int]) -> None:
    vocabulary = bytewise()
    out, whole = "".join(fed(ids, vocabulary.token_bytes, vocabulary.control)), vocabulary.decode(ids)
    assert whole.startswith(out)
    assert whole[len(out) :] in HALF


@given(st.text(), st.data())
def test_it_holds_for_the_real_vocabulary_too(vocabulary: Any, text: str, data: Any) -> None:
    ids = vocabulary.encode(text)
    assert "".join(fed(ids, vocabulary.token_bytes, vocabulary.control)) == vocabulary.decode(ids)
    other = data.draw(st.lists(st.integers(0, vocabulary.size - 1), max_size=12))
    out, whole = "".join(fed(other, vocabulary.token_bytes, vocabulary.control)), vocabulary.decode(other)
    assert whole.startswith(out)
    assert whole[len(out) :] in HALF


@pytest.mark.parametrize("character", ["é", "好", "🌊"])
def test_a_character_is_empty_until_its_last_byte(character: str) -> None:
    parts = [bytes([byte]) for byte in character.encode()]
    assert fed(list(range(len(parts))), parts.__getitem__) == [""] * (len(parts) - 1) + [character]


def test_what_can_never_be_a_character_is_told_at_once() -> None:
    assert fed([0, 1], [b"\xf0\x9f", b"a"].__getitem__) == ["", "\ufffda"]


def test_control_tokens_are_not_shown() -> None:
    assert fed([65, 258, 66], bytewise().token_bytes, bytewise().control) == ["A", "", "B"]
