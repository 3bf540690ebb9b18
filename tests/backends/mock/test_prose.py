"""The mock's words."""

from hypothesis import given
from hypothesis import strategies as st

from backends.mock.prose import IDS, PIECES, Prose
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
