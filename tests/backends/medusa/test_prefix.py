"""Names of blocks and the keys and values that they stand for."""

from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.block_pool import Removed, Stored
from backends.medusa.kv import Slab
from backends.medusa.prefix import PrefixStore, blocks_in, runs
from backends.prefix_cache import Lease
from tests.support.llamas import tiny_shape

BLOCK = 4


def store_of(blocks: int, rows: int = 3, length: int = 64) -> tuple[Slab, PrefixStore]:
    slab = Slab(tiny_shape(), rows, length, torch.float32, torch.device("cpu"))
    slab.kept.zero_()
    return slab, PrefixStore(slab, blocks, BLOCK)


def fill(slab: Slab, seat: int, ids: list[int], start: int = 0) -> None:
    """Stands in for the model: what lies at a position tells the whole text up to it."""
    for place in range(start, len(ids)):
        slab.slice(seat, place, place + 1).fill_(float(hash(tuple(ids[: place + 1])) % 100_003))


def taken(store: PrefixStore, ids: list[int], seat: int, root: int = 1) -> Lease:
    names = store.cache.names(ids, root)
    lease = store.cache.take(ids, root, names, force=True)
    assert lease is not None
    store.load(names[: lease.hit_tokens // BLOCK], seat)
    return lease


def test_what_was_kept_is_what_is_loaded() -> None:
    slab, store = store_of(8)
    ids = list(range(10))
    first = taken(store, ids, 0)
    fill(slab, 0, ids)
    store.commit(first, 0)
    second = taken(store, ids, 2)
    assert (first.hit_tokens, second.hit_tokens) == (0, 8)
    assert torch.equal(slab.slice(2, 0, 8), slab.slice(0, 0, 8))
    assert not slab.slice(2, 8, 10).any()


def test_output_is_kept_behind_the_prompt() -> None:
    slab, store = store_of(8)
    ids = list(range(14))
    lease = taken(store, ids[:6], 0)
    fill(slab, 0, ids)
    store.commit(lease, 0)
    store.grow(lease, 0, ids[6:9])
    store.grow(lease, 0, ids[9:])
    assert taken(store, [*ids, 99], 1).hit_tokens == 12
    assert torch.equal(slab.slice(1, 0, 12), slab.slice(0, 0, 12))


def test_a_salt_separates() -> None:
    _, store = store_of(8)
    ids = list(range(9))
    store.commit(taken(store, ids, 0, root=1), 0)
    assert taken(store, ids, 1, root=2).hit_tokens == 0
    assert taken(store, ids, 2, root=1).hit_tokens == 8


def test_depth_looks_at_whole_blocks_and_never_at_the_whole_prompt() -> None:
    _, store = store_of(8)
    ids = list(range(8))
    names = store.cache.names(ids, 1)
    assert store.depth(names, 8) == 0
    store.commit(taken(store, ids, 0), 0)
    assert store.depth(names, 8) == 1
    assert store.depth(names, 9) == 2


def test_everything_that_is_stored_and_removed_is_an_event_once() -> None:
    _, store = store_of(2)
    lease = taken(store, list(range(8)), 0)
    store.commit(lease, 0)
    lease.release()
    taken(store, list(range(100, 108)), 1)
    stored, removed = store.take_events()
    assert isinstance(stored, Stored)
    assert isinstance(removed, Removed)
    assert set(removed.hashes) == set(stored.hashes)
    assert store.take_events() == []


def test_a_size_in_bytes_is_a_number_of_blocks() -> None:
    slab, _ = store_of(1)
    layers, _, width = slab.kept.shape
    assert blocks_in(10 * layers * BLOCK * width * 4 + 5, slab, BLOCK) == 10


TEXTS = st.lists(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=24), min_size=1, max_size=12)


@settings(max_examples=60)
@given(TEXTS, st.integers(1, 10), st.data())
def test_whatever_is_evicted_a_hit_brings_the_right_keys_and_values(
    texts: list[list[int]], blocks: int, data: st.DataObject
) -> None:
    """Rows come and go in any order, with little room: a loaded beginning is that of the same text."""
    slab, store = store_of(blocks)
    open_rows: dict[int, Lease] = {}
    for ids in texts:
        seat = data.draw(st.sampled_from(range(3)))
        if seat in open_rows:
            open_rows.pop(seat).release()
        slab.slice(seat, 0, 64).zero_()
        lease = taken(store, ids, seat)
        expected = slab.slice(seat, 0, lease.hit_tokens).clone()
        fill(slab, seat, ids)
        assert torch.equal(expected, slab.slice(seat, 0, lease.hit_tokens))
        if data.draw(st.booleans()):
            prompt = data.draw(st.integers(0, 6))
            store.commit(lease, seat)
            fill(slab, seat, [*ids, *[7] * prompt], len(ids))
            store.grow(lease, seat, [7] * prompt)
        open_rows[seat] = lease


@given(st.lists(st.integers(0, 12), unique=True))
def test_runs_are_the_places_again_in_as_few_pieces_as_may_be(places: list[int]) -> None:
    found = runs(places)
    assert [place + more for _, place, count in found for more in range(count)] == places
    assert [places[at] for at, _, _ in found] == [place for _, place, _ in found]
    assert all(place + count != after for (_, place, count), (_, after, _) in pairwise(found))


def test_blocks_that_are_named_together_lie_side_by_side() -> None:
    slab, store = store_of(8)
    ids = list(range(16))
    lease = taken(store, ids, 0)
    fill(slab, 0, ids)
    store.commit(lease, 0)
    assert [block.place for block in store._blocks.values()] == [0, 1, 2, 3]
