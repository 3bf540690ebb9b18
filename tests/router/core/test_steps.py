"""Steps between rungs: how far two prompts begin alike, to an eighth of a gap."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from router.core.fingerprint import DEPTHS, STEP, fingerprint
from router.core.holders import Holders
from router.core.steps import GAPS, MOST_STEPS, Steps, last_rung, noted, steps_after
from router.types import Fingerprint
from tests.support.strategies import MANY

LONG = b"".join(b"%07d " % at for at in range(5000))  # 40,000 bytes, every eight of them different
lengths = st.integers(0, len(LONG))
seeds = st.integers(0, 2**64 - 1)


@st.composite
def parted(draw: st.DrawFn) -> tuple[bytes, bytes, int]:
    """Two prompts, and how many bytes they have in common."""
    same = draw(lengths)
    tails = [draw(st.integers(0, 6000)) for _ in range(2)]
    one, other = (LONG[:same] + mark * length for mark, length in zip((b"x", b"y"), tails, strict=True))
    return one, other, same


def all_steps(text: bytes, seed: int = 0) -> dict[int, int]:
    """The depth of every step there is in this prompt, and its hash."""
    prefix, found = fingerprint(text, seed), {}
    for at in range(last_rung(prefix) + 1):
        steps = steps_after(prefix, at, text)
        if steps is not None:
            found.update(zip(steps.depths, steps.hashes, strict=True))
    return found


def remembered(text: bytes, at: int | None = None) -> tuple[Fingerprint, list[int]]:
    """What is remembered of a prompt of which somebody held the rung `at`."""
    prefix = fingerprint(text, 0)
    return prefix, noted(prefix, steps_after(prefix, at, text) if at is not None else None, text)


def found_depth(holders: Holders, text: bytes) -> int:
    """How much of it the worker that was sent something is expected to hold."""
    prefix, ages = fingerprint(text, 0), dict[str, float]()
    held, deepest = holders.look(prefix, ages)
    if 0 <= deepest <= last_rung(prefix):
        steps = steps_after(prefix, deepest, text)
        if steps is not None:
            holders.look_further(steps, held, ages)
    return held.get("w0", 0)


# Where they lie.


def test_every_gap_has_at_most_eight_steps_strictly_between_its_rungs() -> None:
    assert len(GAPS) == len(DEPTHS) - 1
    for gap, (start, end) in zip(GAPS, pairwise(DEPTHS), strict=True):
        assert len(gap) < MOST_STEPS
        assert all(start < depth < end for depth in gap)
        for below, above in pairwise((start, *gap, end)):
            assert 0 < above - below <= max(2 * STEP, (end - start) / MOST_STEPS + STEP)


def test_a_gap_no_wider_than_one_step_has_none() -> None:
    assert [gap for gap, (start, end) in zip(GAPS, pairwise(DEPTHS), strict=True) if end - start <= STEP if gap] == []


@MANY
@given(parted(), seeds)
def test_two_prompts_share_exactly_the_steps_within_their_common_beginning(
    pair: tuple[bytes, bytes, int], seed: int
) -> None:
    one, other, same = pair
    first, second = all_steps(one, seed), all_steps(other, seed)
    shared = {depth for depth in first if first[depth] == second.get(depth)}
    reach = len(one) if one == other else same
    assert shared == {depth for depth in set(first) & set(second) if depth <= reach}
    beyond = {value for depth, value in first.items() if depth > reach}
    assert not beyond & set(second.values())


@given(lengths, seeds)
def test_steps_lie_within_the_prompt_in_ascending_depth(length: int, seed: int) -> None:
    text = LONG[:length]
    prefix = fingerprint(text, seed)
    for at in range(-1, len(DEPTHS) + 1):
        steps = steps_after(prefix, at, text) if prefix.depths and at <= last_rung(prefix) else None
        if steps is not None:
            assert steps.at == at
            assert steps.depths == [depth for depth in GAPS[at] if depth <= prefix.depths[-1]]
            assert len(set(steps.hashes)) == len(steps.depths) > 0


def test_beyond_the_ladder_there_are_no_steps() -> None:
    prefix = fingerprint(LONG, 0)
    assert steps_after(prefix, -1, LONG) is None
    assert steps_after(prefix, len(GAPS), LONG) is None


@given(lengths)
def test_the_last_rung_is_the_deepest_at_a_depth_of_the_ladder(length: int) -> None:
    prefix = fingerprint(LONG[:length], 0)
    common = [at for at, depth in enumerate(prefix.depths) if depth == DEPTHS[at]]
    assert last_rung(prefix) == max(common, default=-1)


# What is remembered.


@MANY
@given(lengths, st.data())
def test_what_is_remembered_is_the_rungs_in_ascending_depth_with_steps_between(
    length: int, data: st.DataObject
) -> None:
    text = LONG[:length]
    last = last_rung(fingerprint(text, 0))
    prefix, hashes = remembered(text, data.draw(st.none() | st.integers(0, last)) if last >= 0 else None)
    depth_of = {value: depth for depth, value in all_steps(text).items()}
    depth_of |= dict(zip(prefix.hashes, prefix.depths, strict=True))
    depths = [depth_of[value] for value in hashes]
    assert depths == sorted(depths)
    assert [value for value in hashes if value in set(prefix.hashes)][: last + 1] == prefix.hashes[: last + 1]
    assert set(prefix.hashes) <= set(hashes)
    assert len(hashes) <= len(prefix.hashes) + 2 * MOST_STEPS


@given(lengths)
def test_without_its_text_the_rungs_are_all_that_is_remembered(length: int) -> None:
    prefix = fingerprint(LONG[:length], 0)
    assert noted(prefix, None, b"") == prefix.hashes


def test_remembering_changes_no_fingerprint() -> None:
    prefix = fingerprint(LONG, 0)
    before = list(prefix.hashes)
    steps = steps_after(prefix, 20, LONG)
    assert steps is not None
    kept = list(steps.hashes)
    assert len(noted(prefix, steps, LONG)) > len(before)
    assert (prefix.hashes, steps.hashes) == (before, kept)


# How far two prompts are found to begin alike.


def short_by(same: int, found: int) -> None:
    """What was found is no more than what they share, and no less by more than a step."""
    at = max((at for at, depth in enumerate(DEPTHS) if depth <= same), default=-1)
    assert found <= same
    if at < 0:
        assert found == 0
        return
    gap = DEPTHS[at + 1] - DEPTHS[at]
    assert same - found < gap / MOST_STEPS + STEP


@MANY
@given(st.integers(64, 35_000), st.integers(0, 5000))
def test_a_prompt_that_goes_on_where_another_ended_is_found_to_a_step(length: int, more: int) -> None:
    """The next turn of a conversation."""
    holders = Holders()
    holders.note(remembered(LONG[:length])[1], "w0", 100)
    short_by(length, found_depth(holders, LONG[:length] + b"x" * more))


@MANY
@given(parted())
def test_the_third_prompt_that_parts_at_one_place_is_found_to_a_step(pair: tuple[bytes, bytes, int]) -> None:
    """The first was remembered with its own end; the second shows where others part from it."""
    one, other, same = pair
    holders = Holders()
    holders.note(remembered(one)[1], "w0", 100)
    prefix = fingerprint(other, 0)
    _, deepest = holders.look(prefix)
    holders.note(remembered(other, deepest)[1], "w0", 100)
    short_by(same, found_depth(holders, LONG[:same] + b"z" * 6000))


@given(parted())
def test_no_more_is_ever_found_than_there_is_in_common(pair: tuple[bytes, bytes, int]) -> None:
    one, other, same = pair
    holders = Holders()
    holders.note(remembered(one)[1], "w0", 100)
    assert found_depth(holders, other) <= (len(one) if one == other else same)


def test_steps_are_what_they_were_made_of() -> None:
    steps = Steps(3, [768], [1])
    assert (steps.at, steps.depths, steps.hashes) == (3, [768], [1])
