"""What stands for a prompt's text: equal beginnings stay equal, and nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.fingerprint import DEPTHS, fingerprint
from router.replay.tokens import token_ends
from router.replay.words import HEAD, BlockWords, HashedWords, TextWords, filler
from tests.support.replays import LABELS, paths

PROSE = b"The ring proposes, a cost decides; whoever holds the prefix is asked first. " * 40


def test_a_filler_names_its_label_from_the_first_characters_on() -> None:
    assert len(filler("a")) == 2048
    assert filler("a", 100) == filler("a")[:100]
    assert filler("a")[:32] != filler("b")[:32]


@given(paths, paths)
def test_blocks_in_common_are_text_in_common(one: list[int], other: list[int]) -> None:
    first, second = (BlockWords(names, LABELS, 512 * len(names)).head() for names in (one, other))
    common = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    common = min(len(one), len(other)) if common is None else common
    assert first[: common * 2048] == second[: common * 2048]
    assert first[common * 2048 :][:16] != second[common * 2048 :][:16] or common == len(one) == len(other)


def test_a_block_prompt_has_four_characters_a_token() -> None:
    words = BlockWords([1, 2], LABELS, 700)
    assert (words.length, len(words.head()), words.fingerprint().tokens) == (2800, 2800, 700)


@given(paths, st.integers(0, 9), st.integers(0, 14_000), st.integers(0, 14_000))
def test_a_slice_of_blocks_is_a_slice_of_their_text(names: list[int], short: int, start: int, end: int) -> None:
    words = BlockWords(names, LABELS, 512 * len(names) - short)
    whole = b"".join(filler(LABELS[name]) for name in names)[: words.length]
    assert words[start:end] == whole[start:end]
    assert (len(words), words[: words.length]) == (words.length, whole)


def test_a_slice_of_real_text_is_its_own() -> None:
    assert TextWords(PROSE)[10:20] == PROSE[10:20]
    assert len(TextWords(PROSE)) == len(PROSE)


def test_where_depths_are_no_places_in_the_text_there_is_none_to_slice() -> None:
    assert not TextWords(PROSE, token_ends(PROSE), 1.5)
    assert not HashedWords(fingerprint(PROSE, 0))
    assert HashedWords(fingerprint(PROSE, 0))[0:100] == b""


def test_a_head_is_bounded() -> None:
    assert len(BlockWords(list(range(100)), LABELS, 512 * 100).head()) == HEAD


def test_real_text_is_hashed_as_it_is() -> None:
    words = TextWords(PROSE)
    assert words.fingerprint() == fingerprint(PROSE, 0)
    assert (words.length, words.head()) == (len(PROSE), PROSE)


@pytest.mark.parametrize("ratio", [1.0, 1.5])
def test_told_true_tokens_the_router_has_them_at_every_depth(ratio: float) -> None:
    ends = token_ends(PROSE)
    told = TextWords(PROSE, ends, ratio).fingerprint()
    assert told.hashes == fingerprint(PROSE, 0).hashes
    assert told.tokens == round(len(ends) * ratio)
    before = sum(end <= DEPTHS[5] for end in ends)
    assert told.depths[5] == 4 * round(before * ratio)


def test_of_a_log_equal_rungs_are_equal_text() -> None:
    one, other = (
        HashedWords(fingerprint(text, 0)).head() for text in (PROSE[:1000] + b"x" * 500, PROSE[:1000] + b"y" * 500)
    )
    assert one[:768] == other[:768]
    assert one[768:800] != other[768:800]


def test_the_head_of_a_long_logged_prompt_is_bounded() -> None:
    words = HashedWords(fingerprint(PROSE * 100, 0))
    assert HEAD <= len(words.head()) < 2 * HEAD
    assert words.length == 100 * len(PROSE)


def test_a_logged_prompt_without_a_rung_is_like_no_other() -> None:
    one, other = (HashedWords(fingerprint(text, 0)).head() for text in (b"short", b"other"))
    assert len(one) == len(other) == 5
    assert one != other
