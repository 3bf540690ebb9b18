"""One worker's KV-cache messages: what is known of its cache after gaps, restarts, repetitions and garbage."""

from typing import Any

import msgspec
import pytest

from router.core.blocks import Blocks
from router.signals.kv_follower import MOST_BYTES, MOST_RANKS, Follower

STORED = ["BlockStored", [1, 2], None, [1, 2, 3, 4], 2, None, "GPU"]
NEXT = ["BlockStored", [3], 2, [5, 6], 2, None, "GPU"]


def message(number: int, *events: Any, rank: int | None = 0) -> list[bytes]:
    return [b"", number.to_bytes(8, "big"), msgspec.msgpack.encode([1.0, events, rank])]


@pytest.fixture
def blocks() -> Blocks:
    return Blocks()


@pytest.fixture
def follower(blocks: Blocks) -> Follower:
    return Follower("w", blocks)


def complete(blocks: Blocks) -> bool:
    return blocks.view("w").complete


def test_an_engine_followed_from_its_start_is_known_completely(blocks: Blocks, follower: Follower) -> None:
    follower.take(message(0, STORED))
    follower.take(message(1, NEXT, ["BlockRemoved", [3], "GPU"]))
    assert (len(blocks), complete(blocks)) == (2, True)
    assert follower.counts == {"stored": 3, "removed": 1}


def test_an_engine_that_began_before_is_known_in_part_until_it_clears_its_cache(
    blocks: Blocks, follower: Follower
) -> None:
    follower.take(message(17, STORED))
    assert (len(blocks), complete(blocks)) == (2, False)
    follower.take(message(18, ["AllBlocksCleared"]))
    assert (len(blocks), complete(blocks)) == (0, True)
    assert follower.counts == {"stored": 2, "cleared": 1}, "coming late is no gap"


def test_a_gap_loses_what_was_known_and_what_comes_with_it_counts(blocks: Blocks, follower: Follower) -> None:
    follower.take(message(0, STORED))
    follower.take(message(2, ["BlockStored", [9], None, [7, 8], 2]))
    assert (len(blocks), complete(blocks)) == (1, False)
    follower.take(message(3, NEXT))
    assert len(blocks) == 1, "the block before it is unknown now"
    assert follower.counts == {"stored": 3, "gap": 1, "unplaced": 1}


def test_an_engine_that_starts_again_is_empty_and_known_completely(blocks: Blocks, follower: Follower) -> None:
    follower.take(message(5, STORED))
    follower.take(message(0, ["BlockStored", [9], None, [7, 8], 2]))
    assert (len(blocks), complete(blocks)) == (1, True)
    assert "gap" not in follower.counts


def test_a_message_that_comes_twice_counts_once(blocks: Blocks, follower: Follower) -> None:
    follower.take(message(0, STORED))
    follower.take(message(1, NEXT))
    follower.take(message(1, NEXT))
    assert follower.counts == {"stored": 3}
    assert complete(blocks)


def test_engines_of_one_worker_number_their_messages_each_for_itself(blocks: Blocks, follower: Follower) -> None:
    follower.take(message(0, STORED, rank=0))
    follower.take(message(0, ["BlockStored", [9], None, [7, 8], 2], rank=1))
    follower.take(message(1, rank=0))
    follower.take(message(1, rank=1))
    assert (len(blocks), complete(blocks)) == (3, True)
    follower.take(message(3, rank=1))
    assert (len(blocks), follower.counts["gap"]) == (0, 1)


def test_ranks_are_bounded(follower: Follower) -> None:
    for rank in range(1000):
        follower.take(message(0, rank=rank))
    assert len(follower._next) <= MOST_RANKS


def test_of_several_caches_the_first_that_keeps_every_token_counts(blocks: Blocks, follower: Follower) -> None:
    """Their blocks have the same names, and each tells of its own."""

    def stored(group: int, kind: str) -> dict[str, Any]:
        return {"type": "BlockStored", "block_hashes": [1, 2], "parent_block_hash": None, "token_ids": [1, 2, 3, 4],
                "block_size": 2, "group_idx": group, "kv_cache_spec_kind": kind}  # fmt: skip

    def removed(group: int) -> dict[str, Any]:
        return {"type": "BlockRemoved", "block_hashes": [1, 2], "medium": "GPU", "group_idx": group}

    follower.take(message(0, stored(0, "mamba"), stored(1, "full_attention"), stored(2, "full_attention")))
    follower.take(message(1, removed(0), removed(2)))
    assert len(blocks) == 2
    follower.take(message(2, removed(1)))
    assert len(blocks) == 0


@pytest.mark.parametrize("frames", [[], [b""], [b"", b""], [b"", b"1234567", b"\x93\x01\x90\x00"], message(1)[:2],
    [*message(1), b""], [b"", bytes(8), b"garbage"], [b"", bytes(8), b""], [b"", bytes(8), b"\xdd\xff\xff\xff\xff"],
    [b"", bytes(8), b"\x91" * 100_000], [b"", bytes(8), bytes(MOST_BYTES + 1)]])  # fmt: skip
def test_what_is_no_message_is_counted_and_nothing_is_certain_after_it(
    blocks: Blocks, follower: Follower, frames: list[bytes]
) -> None:
    follower.take(message(0, STORED))
    follower.take(frames)
    assert (len(blocks), complete(blocks), follower.counts["malformed"]) == (0, False, 1)


def test_of_a_message_with_an_event_that_is_none_the_others_count(blocks: Blocks, follower: Follower) -> None:
    follower.take(message(0, STORED))
    follower.take(message(1, {"what": 1}, ["BlockStored", [9], None, [7, 8], 2]))
    assert (len(blocks), complete(blocks)) == (1, False)
