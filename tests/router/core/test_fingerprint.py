"""A prompt's chained hashes: shared as far as the prompts are, and the same everywhere."""

import itertools
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.fingerprint import DEPTHS, MOST_RUNGS, STEP, fingerprint, prefix_hash, rung_depths, seed_of
from tests.support.fleets import chat, prompt_of
from tests.support.strategies import MANY, prompts, seeds, texts

parts = st.lists(st.none() | texts, min_size=1, max_size=5)

KNOWN_SEED = 0x3EE830CF5B3377EA
KNOWN_HASHES = [1319829101199810580, 13890028522532423117, 16052799284965942118]


def common(one: bytes, other: bytes) -> int:
    at = 0
    while at < min(len(one), len(other)) and one[at] == other[at]:
        at += 1
    return at


# The rungs.


def test_rungs_begin_fine_and_then_grow_by_about_fifteen_percent() -> None:
    assert DEPTHS[:5] == (64, 256, 512, 768, 1024)
    for below, above in itertools.pairwise(DEPTHS[1:]):
        assert above % STEP == 0
        assert above - below >= STEP
        assert above - below <= max(STEP, 0.15 * below)


def test_sixty_four_rungs_reach_megabytes() -> None:
    assert len(DEPTHS) == MOST_RUNGS
    assert DEPTHS[-1] > 1_000_000


@given(st.integers(1, 64))
def test_a_shorter_ladder_is_the_beginning_of_the_whole_one(most: int) -> None:
    assert rung_depths(most) == DEPTHS[:most]


def test_the_last_rung_is_the_end_of_the_last_full_step() -> None:
    assert fingerprint(b"x" * 10_000, 0).depths[-1] == 10_000 // STEP * STEP


def test_a_prompt_of_256_kb_has_about_forty_five_hashes() -> None:
    assert 40 <= len(fingerprint(b"x" * 262_144, 0).hashes) <= 50


@pytest.mark.parametrize("megabytes", [1, 8, 64])
def test_a_huge_prompt_has_no_more_hashes_than_there_are_rungs(megabytes: int) -> None:
    assert len(fingerprint(bytes(megabytes * 1_000_000), 0).hashes) <= MOST_RUNGS


@given(prompts, seeds)
def test_depths_ascend_within_the_prompt_and_each_has_one_hash(text: bytes, seed: int) -> None:
    prefix = fingerprint(text, seed)
    assert list(prefix.depths) == sorted(set(prefix.depths))
    assert all(0 < depth <= len(text) for depth in prefix.depths)
    assert len(prefix.depths) == len(prefix.hashes)
    assert all(0 <= value < 2**64 for value in prefix.hashes)
    assert prefix.tokens == len(text) / 4


@given(prompts, seeds, st.floats(0.5, 16))
def test_a_prompt_is_as_many_tokens_long_as_its_bytes_make_and_that_changes_no_hash(
    text: bytes, seed: int, bytes_a_token: float
) -> None:
    plain, told = fingerprint(text, seed), fingerprint(text, seed, bytes_a_token)
    assert (told.tokens, told.bytes_a_token) == (len(text) / bytes_a_token, bytes_a_token)
    assert (told.depths, told.hashes, told.whole) == (plain.depths, plain.hashes, plain.whole)


# Sharing.


@given(prompts, prompts, prompts, seeds)
def test_two_prompts_share_exactly_the_hashes_within_their_common_beginning(
    head: bytes, one_tail: bytes, other_tail: bytes, seed: int
) -> None:
    one, other = head + one_tail, head + other_tail
    first, second = fingerprint(one, seed), fingerprint(other, seed)
    same = common(one, other)
    within = [depth for depth in DEPTHS if depth <= same]
    shared = list(zip(first.hashes, second.hashes, strict=False))
    assert [a for a, b in shared if a == b][: len(within)] == first.hashes[: len(within)]
    beyond = set(first.hashes[len(within) :]) & set(second.hashes[len(within) :])
    if one != other:
        reached = {value for value, depth in zip(first.hashes, first.depths, strict=True) if depth <= same}
        assert beyond <= reached


@given(prompts, st.binary(min_size=1, max_size=3000), seeds)
def test_a_longer_prompt_that_extends_a_shorter_one_has_its_rungs(text: bytes, more: bytes, seed: int) -> None:
    rungs = [value for value, depth in zip(*pair(text, seed), strict=True) if depth in DEPTHS]
    assert fingerprint(text + more, seed).hashes[: len(rungs)] == rungs


def pair(text: bytes, seed: int) -> tuple[list[int], tuple[int, ...]]:
    prefix = fingerprint(text, seed)
    return prefix.hashes, prefix.depths


@given(st.binary(min_size=64, max_size=2000), seeds, st.data())
def test_a_changed_byte_changes_every_hash_from_there_on_and_none_before(
    text: bytes, seed: int, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]
    before, after = fingerprint(text, seed), fingerprint(changed, seed)
    for depth, old, new in zip(before.depths, before.hashes, after.hashes, strict=True):
        assert (old == new) == (depth <= at)


@given(st.binary(min_size=64, max_size=2000), seeds, seeds)
def test_another_seed_shares_nothing(text: bytes, one: int, other: int) -> None:
    shared = set(fingerprint(text, one).hashes) & set(fingerprint(text, other).hashes)
    assert bool(shared) == (one == other)


@given(st.binary(min_size=1, max_size=63), st.binary(min_size=1, max_size=63), seeds)
def test_a_prompt_too_short_for_any_rung_is_hashed_whole(one: bytes, other: bytes, seed: int) -> None:
    first, second = fingerprint(one, seed), fingerprint(other, seed)
    assert first.hashes == []
    assert (first.whole == second.whole) == (one == other)


def test_nothing_has_no_hash_and_no_tokens() -> None:
    nothing = fingerprint(b"", 5)
    assert (nothing.depths, nothing.hashes, nothing.whole, nothing.tokens) == ((), [], 0, 0.0)


@given(prompts, seeds, st.integers(0, 4000))
def test_a_prefix_of_fixed_length_is_all_that_its_hash_knows(text: bytes, seed: int, length: int) -> None:
    assert prefix_hash(text, seed, length) == prefix_hash(text[:length] + b"anything", seed, min(length, len(text)))


# Seeds.


@MANY
@given(parts, parts)
def test_seeds_differ_wherever_their_parts_do(one: list[str | None], other: list[str | None]) -> None:
    assert (seed_of(*one) == seed_of(*other)) == (one == other)


@pytest.mark.parametrize("at", range(5))
def test_an_absent_part_is_not_an_empty_one(at: int) -> None:
    absent: list[str | None] = ["m", "t", "s", "k", "p"]
    empty: list[str | None] = list(absent)
    absent[at], empty[at] = None, ""
    assert seed_of(*absent) != seed_of(*empty)


def test_the_borders_between_parts_count() -> None:
    assert seed_of("ab", "c") != seed_of("a", "bc")
    assert seed_of("a", None) != seed_of(None, "a")


def test_a_lone_surrogate_has_a_seed() -> None:
    assert seed_of("\ud800") != seed_of("\ud801")


# The same everywhere.


def known_chat() -> bytes:
    return prompt_of(chat("What is a prefix?", system="You are terse. " * 40)).text


def known_answers() -> tuple[int, list[int]]:
    seed = seed_of("mock-model", None, "salt", "", None)
    return seed, fingerprint(known_chat(), seed).hashes


def test_a_known_prompt_has_known_hashes() -> None:
    """Frozen: two replicas of different releases, or after a restart, must agree on every key."""
    assert known_answers() == (KNOWN_SEED, KNOWN_HASHES)


def test_another_process_with_another_hash_seed_agrees() -> None:
    code = (
        "import json; from router.core.fingerprint import fingerprint, seed_of;"
        "print(json.dumps(fingerprint(b'the same everywhere ' * 50, seed_of('m', None)).hashes))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, text=True, env={"PYTHONHASHSEED": str(seed)}
        ).stdout
        for seed in (1, 2)
    ]
    expected = fingerprint(b"the same everywhere " * 50, seed_of("m", None)).hashes
    assert [json.loads(output) for output in outputs] == [expected, expected]
