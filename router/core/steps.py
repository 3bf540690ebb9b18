"""Steps between rungs: how far, within the gap after a rung, two prompts still begin alike.

Rungs lie up to 15% apart, so that a long prompt has few; but a prompt that ends or parts from another within a gap
would be taken for a sixth shorter than it is, and every next turn of a conversation does. The gap is therefore looked
at in at most eight steps, in the two gaps where it matters: after the deepest rung that anybody holds, and after the
prompt's own last rung. The steps' depths are the same for all prompts, and their hashes are chained like the rungs'.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, Protocol

from xxhash import xxh3_64_intdigest

from router.core.fingerprint import DEPTHS, MOST_RUNGS, STEP
from router.types import Fingerprint

MOST_STEPS: Final = 8
MOST_NOTED: Final = MOST_RUNGS + 2 * MOST_STEPS  # hashes of one prompt


class Text(Protocol):
    """The canonical prompt, or what gives its spans."""

    def __getitem__(self, span: slice, /) -> bytes: ...


def _between(start: int, end: int) -> tuple[int, ...]:
    stride = -(-(end - start) // (STEP * MOST_STEPS)) * STEP
    return tuple(range(start + stride, end, stride))


GAPS: Final = tuple(_between(start, end) for start, end in pairwise(DEPTHS))


class Steps:
    """The steps in the gap after rung `at`: `depths` in bytes, and their hashes."""

    __slots__ = ("at", "depths", "hashes")

    def __init__(self, at: int, depths: list[int], hashes: list[int]) -> None:
        self.at = at
        self.depths = depths
        self.hashes = hashes


def last_rung(prefix: Fingerprint) -> int:
    """The deepest rung at a depth of the ladder; -1 for none. The end of the last full 256 is this prompt's own."""
    last = len(prefix.depths) - 1
    return last if last < 0 or prefix.depths[last] == DEPTHS[last] else last - 1


def steps_after(prefix: Fingerprint, at: int, text: Text) -> Steps | None:
    """The steps within this prompt in the gap after rung `at`, hashed; None where there are none."""
    if not 0 <= at < len(GAPS):
        return None
    gap, end = GAPS[at], prefix.depths[-1]
    if not gap or gap[0] > end:
        return None
    depths, hashes = [], []
    value, start, digest = prefix.hashes[at], DEPTHS[at], xxh3_64_intdigest
    for depth in gap:
        if depth > end:
            break
        value = digest(text[start:depth], value)
        depths.append(depth)
        hashes.append(value)
        start = depth
    return Steps(at, depths, hashes)


def noted(prefix: Fingerprint, steps: Steps | None, text: Text) -> list[int]:
    """All hashes to remember of a prompt, shallowest first: its rungs, and the steps in both gaps."""
    hashes = prefix.hashes
    if not text:
        return hashes
    last = last_rung(prefix)
    tail = steps if steps is not None and steps.at == last else steps_after(prefix, last, text)
    if tail is not None and tail.hashes[0] != hashes[-1]:  # a first step at the prompt's own end is that end
        hashes = hashes[: last + 1] + tail.hashes + hashes[last + 1 :]
    if steps is not None and steps is not tail:
        hashes = hashes[: steps.at + 1] + steps.hashes + hashes[steps.at + 1 :]
    return hashes
