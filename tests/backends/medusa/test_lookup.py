"""Guesses from the text itself, against a search that reads all of it."""

from hypothesis import given
from hypothesis import strategies as st

from backends.medusa.lookup import LONGEST_MATCH, Lookup

texts = st.lists(st.integers(0, 3), max_size=40)


def searched(text: list[int], root: int, most: int) -> tuple[list[int], int]:
    """The last earlier place where the longest ending of text and root stands, and what follows it there."""
    whole = [*text, root]
    for size in range(LONGEST_MATCH, 1, -1):
        for end in range(len(text), size - 1, -1):
            if len(whole) >= size and whole[end - size : end] == whole[-size:]:
                copy = whole[:]
                for place in range(most):
                    copy.append(copy[end + place])
                return copy[len(whole) :], size
    return [], 0


@given(texts, st.integers(0, 3), st.integers(1, 9))
def test_it_finds_what_a_search_through_the_whole_text_finds(text: list[int], root: int, most: int) -> None:
    assert Lookup(text).find(root, most) == searched(text, root, most)


@given(texts, st.integers(0, 40), st.integers(0, 3))
def test_a_text_that_comes_in_pieces_is_the_same_text(text: list[int], cut: int, root: int) -> None:
    pieces = Lookup(text[:cut])
    pieces.extend(text[cut:])
    assert pieces.find(root, 5) == Lookup(text).find(root, 5)


def test_the_last_time_counts_and_three_tokens_count_more_than_two() -> None:
    assert Lookup([1, 2, 7, 1, 2, 8, 9, 1]).find(2, 2) == ([8, 9], 2)
    assert Lookup([0, 1, 2, 7, 5, 1, 2, 8, 0, 1]).find(2, 1) == ([7], 3)


def test_one_token_that_agrees_is_not_enough() -> None:
    assert Lookup([1, 2, 3]).find(2, 4) == ([], 0)
    assert Lookup([]).find(2, 4) == ([], 0)


def test_a_text_that_repeats_itself_is_guessed_to_go_on_so() -> None:
    assert Lookup([7, 7]).find(7, 4) == ([7, 7, 7, 7], 2)
    assert Lookup([1, 2, 3, 1, 2, 3, 1]).find(2, 5) == ([3, 1, 2, 3, 1], 3)


def test_what_it_returns_is_no_part_of_the_text() -> None:
    lookup = Lookup([1, 2, 3, 1])
    lookup.find(2, 1)[0].append(99)
    assert lookup.find(2, 4) == ([3, 1, 2, 3], 2)
