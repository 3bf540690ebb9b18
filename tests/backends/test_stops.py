"""Strings that end an answer."""

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from backends.stops import Stops, borders

letters = st.text("ab", max_size=30)
strings = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)


def naive(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The text up to the stop string that is complete first, the longest of those; and that string."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            found = max(complete, key=len)
            return text[: end - len(found)], found
    return text, None


def could_begin(text: str, stops: Sequence[str]) -> bool:
    """Whether the text ends with a beginning of a stop string."""
    return any(text.endswith(stop[:length]) for stop in stops for length in range(1, len(stop) + 1))


@given(st.lists(letters, max_size=8), strings)
@example(["aab", "aaab"], ["aaab"])
@example(["ab", "b"], ["abb", "b"])
def test_any_pieces_give_what_the_whole_text_gives(pieces: list[str], stops: list[str]) -> None:
    found = Stops(stops)
    sent = "".join(map(found.feed, pieces)) + found.rest()
    assert (sent, found.found) == naive("".join(pieces), stops)


@given(st.lists(letters, max_size=8), strings)
def test_nothing_is_sent_that_could_begin_a_stop_string_and_nothing_else_is_held_back(
    pieces: list[str], stops: list[str]
) -> None:
    found, text, sent = Stops(stops), "", ""
    for piece in pieces:
        text += piece
        sent += found.feed(piece)
        if found.found is not None:
            return
        held = text[len(sent) :]
        assert text.startswith(sent)
        assert not held or any(stop.startswith(held) for stop in stops)
        assert not could_begin(text, stops) or held


def test_after_a_stop_string_nothing_more_is_sent() -> None:
    stops = Stops(["END"])
    assert stops.feed("the EN") == "the "
    assert stops.feed("D and more") == ""
    assert stops.feed("more") == ""
    assert stops.rest() == ""
    assert stops.found == "END"


def test_what_looked_like_a_stop_string_and_was_none_comes_late_but_comes() -> None:
    stops = Stops(["\n\n"])
    assert [stops.feed(piece) for piece in ("a\n", "b\n")] == ["a", "\nb"]
    assert stops.rest() == "\n"
    assert stops.rest() == ""


def test_the_borders_of_a_string_are_where_it_repeats_its_beginning() -> None:
    assert borders("aabaaab") == [0, 1, 0, 1, 2, 2, 3]
