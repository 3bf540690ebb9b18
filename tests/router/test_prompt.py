"""The canonical bytes of a prompt: marks that no text can hold, and nothing that fails."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.prompt import (
    BIG_IDS,
    CALL,
    IDS,
    MEDIA,
    NAME,
    NEXT,
    NOTHING,
    OPEN,
    TEXT,
    TOOLS,
    TURN,
    encoded,
    ids,
    media,
    stable,
    tagged,
    text,
    turn,
)
from tests.support.strategies import MANY, json_values, texts

token_ids = st.lists(st.integers(0, 0x10FFFF), max_size=20)


def written(write: object, *arguments: object) -> bytes:
    out: list[bytes] = []
    write(out, *arguments)  # type: ignore[operator]
    return b"".join(out)


@given(texts)
def test_no_text_holds_a_mark(anything: str) -> None:
    assert b"\xff" not in encoded(anything)
    assert b"\xfe" not in encoded(anything)


@given(texts, texts)
def test_text_is_encoded_one_to_one_lone_surrogates_too(one: str, other: str) -> None:
    assert (encoded(one) == encoded(other)) == (one == other)
    assert encoded(one).decode("utf-8", "surrogatepass") == one


def test_a_lone_surrogate_is_kept() -> None:
    assert encoded("a\ud800") == b"a\xed\xa0\x80"


def test_the_marks_differ() -> None:
    marks = (TURN, TOOLS, TEXT, MEDIA, CALL, NAME, IDS, BIG_IDS, NEXT)
    assert len(set(marks)) == len(marks)
    assert all(mark[:1] == b"\xff" and len(mark) == 2 for mark in marks)
    assert OPEN == b"\xfe"


def test_a_turn_is_a_mark_its_role_and_an_opening() -> None:
    assert written(turn, "user") + written(text, "hi") == b"\xffTuser\xfehi"


def test_a_tagged_part_is_closed() -> None:
    assert written(tagged, CALL, b"{}") == b"\xffC\xfe{}\xfe"


@given(st.lists(st.tuples(texts, texts), max_size=4), st.lists(st.tuples(texts, texts), max_size=4))
def test_two_different_lists_of_turns_never_give_the_same_bytes(
    one: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    def canonical(turns: list[tuple[str, str]]) -> bytes:
        return b"".join(written(turn, role) + written(text, content) for role, content in turns)

    assert (canonical(one) == canonical(other)) == (one == other)


@pytest.mark.parametrize("kind", [CALL, NAME, MEDIA, TOOLS])
def test_text_that_looks_like_a_part_is_none(kind: bytes) -> None:
    part = written(tagged, kind, b"x")
    assert written(text, part.decode("latin-1")) != part


@given(st.binary(max_size=500) | texts | json_values)
def test_media_of_any_size_give_a_short_stable_digest(content: object) -> None:
    assert len(written(media, content)) == 20
    assert written(media, content) == written(media, content)


def test_different_media_give_different_digests() -> None:
    assert written(media, b"one") != written(media, b"two")
    assert len(written(media, b"\x00" * 5_000_000)) == 20


@MANY
@given(json_values)
@example(float("nan"))
@example({"\ud800": "\udfff"})
@example(10**40)
@example({1, 2})
def test_any_value_has_stable_bytes(value: object) -> None:
    assert stable(value) == stable(value)
    assert b"\xff" not in stable(value)


# Token ids.


def test_ids_are_told_apart_by_number_and_not_by_digits() -> None:
    assert written(ids, [71, 85]) != written(ids, [7185])


def test_lists_of_one_length_do_not_share() -> None:
    assert written(ids, [101, 7, 8, 9]) != written(ids, [55, 1, 2, 3])


@given(token_ids, token_ids)
def test_equal_leading_ids_share_their_bytes_and_only_they(one: list[int], other: list[int]) -> None:
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    first, second = written(ids, one), written(ids, other)
    common = written(ids, one[:shared])
    assert first.startswith(common)
    assert second.startswith(common)
    if shared < min(len(one), len(other)):
        assert first[: len(common) + 4] != second[: len(common) + 4]
    assert (first == second) == (one == other)


def test_ids_are_code_points_in_utf_8() -> None:
    assert written(ids, [1, 258, 0xD800, 0x10FFFF]) == IDS + OPEN + b"\x01\xc4\x82\xed\xa0\x80\xf4\x8f\xbf\xbf"
    assert written(ids, []) == IDS + OPEN


@given(token_ids)
def test_no_ids_look_like_a_mark(numbers: list[int]) -> None:
    content = written(ids, numbers).removeprefix(IDS + OPEN)
    assert b"\xff" not in content
    assert b"\xfe" not in content
    assert content.decode("utf-8", "surrogatepass") == "".join(map(chr, numbers))


@given(st.lists(token_ids, max_size=4), st.lists(token_ids, max_size=4))
def test_lists_of_ids_are_told_apart(one: list[list[int]], other: list[list[int]]) -> None:
    first, second = (b"".join(written(ids, each) for each in lists) for lists in (one, other))
    assert (first == second) == (one == other)


@given(st.lists(st.integers(), max_size=10))
@example([0x110000])
@example([-1])
@example([2**200])
def test_ids_that_no_vocabulary_holds_are_written_all_the_same(numbers: list[int]) -> None:
    plain = all(0 <= number <= 0x10FFFF for number in numbers)
    decimal = BIG_IDS + OPEN + ",".join(map(str, numbers)).encode()
    assert written(ids, numbers) == (
        IDS + OPEN + "".join(map(chr, numbers)).encode("utf-8", "surrogatepass") if plain else decimal
    )


def test_ids_written_as_text_never_equal_ids_written_as_numbers() -> None:
    """The characters of `2147483648,1` are twelve ids as well."""
    assert written(ids, [2**31, 1]) != written(ids, list(b"2147483648,1"))


@given(st.lists(st.integers(-(2**40), 2**40), max_size=5), st.lists(st.integers(-(2**40), 2**40), max_size=5))
def test_lists_of_any_numbers_are_told_apart(one: list[int], other: list[int]) -> None:
    assert (written(ids, one) == written(ids, other)) == (one == other)


def test_nothing_is_nothing() -> None:
    assert NOTHING.text == b""
    assert NOTHING.model is None
