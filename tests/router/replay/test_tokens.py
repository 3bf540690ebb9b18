"""The stand-in for a tokenizer: every byte once, and beginnings keep their tokens."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.replay.tokens import token_ends


def pieces(text: str) -> list[str]:
    encoded = text.encode()
    return [encoded[begin:end].decode() for begin, end in pairwise([0, *token_ends(encoded)])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the warm cache", ["the", " warm", " cache"]),
        ("incomprehensibilities", ["incomprehens", "ibilities"]),
        ("in 2026", ["in", " ", "202", "6"]),
        ("f(x)", ["f", "(", "x", ")"]),
        ("a\n\n\nb", ["a", "\n\n\n", "b"]),
        ("{\n    return", ["{", "\n", "   ", " return"]),
        ("=====", ["====="]),
        ("x += [()];", ["x", " +=", " [()", "];"]),
        ("né", ["n", "é"]),
        ("", []),
    ],
)
def test_text_falls_into_pieces(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@given(st.binary(max_size=200))
def test_every_byte_is_in_one_token(text: bytes) -> None:
    ends = token_ends(text)
    assert ends == sorted(set(ends))
    assert (ends[-1] if ends else 0) == len(text)


@given(st.text("ab \n12.é", max_size=60), st.text("ab \n12.é", max_size=60))
def test_a_beginning_keeps_its_tokens_but_the_last_few(head: str, tail: str) -> None:
    short, long = token_ends(head.encode()), token_ends((head + tail).encode())
    settled = [end for end in short if end < len(head.encode()) - 20]
    assert long[: len(settled)] == settled


def test_english_has_a_little_over_four_characters_a_token_and_code_fewer() -> None:
    prose = b"A request goes where the beginning of its prompt was computed before, unless too many wait there. "
    code = b"for (i = 0; i < n; i++) { x[i] += 0.5 * y[i]; }\n"
    assert 4 < len(prose) / len(token_ends(prose)) < 5
    assert 1.5 < len(code) / len(token_ends(code)) < 3.5
