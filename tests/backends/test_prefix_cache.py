"""The prefix cache: what is hit, what is kept, what is given back."""

from hypothesis import given
from hypothesis import strategies as st

from backends.block_pool import Removed, Stored
from backends.prefix_cache import Lease, PrefixCache, chain, root_of

ROOT = root_of("m")


def run(cache: PrefixCache, ids: list[int], root: int = ROOT) -> int:
    """A whole life of one prompt; the tokens it hit."""
    lease = cache.take(ids, root)
    assert lease is not None
    lease.commit()
    lease.release()
    return lease.hit_tokens


def test_names_depend_on_the_whole_beginning() -> None:
    """The same block after another beginning has another name."""
    first, second = chain([1, 2, 9, 9], ROOT, 2), chain([3, 4, 9, 9], ROOT, 2)
    assert first[1] != second[1]
    assert chain([1, 2, 9, 9, 5], ROOT, 2) == first


def test_names_are_the_same_everywhere() -> None:
    """A fixed vector: names must not change between processes, machines or releases."""
    assert chain([1, 2, 3, 4], root_of("m"), 2) == [3655525437606890415, 2105093983551495967]


def test_an_absent_salt_is_not_an_empty_one() -> None:
    assert len({root_of("m"), root_of("m", ""), root_of("m", "s"), root_of("n")}) == 4


def test_a_repeated_prompt_hits_whole_blocks_but_never_all_of_it() -> None:
    """Eight tokens in blocks of four: the last block is computed again, for there must be something to sample from."""
    cache = PrefixCache(10, 4)
    ids = list(range(8))
    assert run(cache, ids) == 0
    assert run(cache, ids) == 4
    assert run(cache, [*ids, 8]) == 8


def test_another_salt_hits_nothing() -> None:
    cache = PrefixCache(10, 2)
    run(cache, [1, 2, 3])
    assert run(cache, [1, 2, 3], root_of("m", "s")) == 0


def test_generated_blocks_are_hit_by_the_next_turn() -> None:
    """Prompt and output are one chain."""
    cache = PrefixCache(10, 2)
    lease = cache.take([1, 2, 3], ROOT)
    assert lease is not None
    lease.commit()
    lease.grow([4, 5, 6])
    lease.release()
    assert run(cache, [1, 2, 3, 4, 5, 6, 7]) == 6


def test_an_aborted_prefill_leaves_nothing_behind() -> None:
    """Names come with `commit`: what was not computed cannot be hit."""
    cache = PrefixCache(10, 2)
    lease = cache.take([1, 2, 3, 4], ROOT)
    assert lease is not None
    lease.release()
    assert cache.match([1, 2, 3, 4, 5], ROOT) == 0
    assert cache.usage == 0


def test_release_gives_back_once() -> None:
    cache = PrefixCache(10, 2)
    first, second = cache.take([1, 2, 3], ROOT), cache.take([1, 2, 3], ROOT)
    assert first is not None
    assert second is not None
    first.release()
    first.release()
    assert cache.pool.in_use == 2
    second.release()
    assert cache.pool.in_use == 0


def test_without_room_a_sequence_is_not_let_in_unless_forced() -> None:
    """What runs keeps its blocks. Forced in, a prompt takes what there is and its tail is not cached."""
    cache = PrefixCache(3, 2)
    running = cache.take([1, 2, 3, 4], ROOT)
    assert running is not None
    assert cache.take([5, 6, 7, 8], ROOT) is None
    forced = cache.take([5, 6, 7, 8], ROOT, force=True)
    assert forced is not None
    forced.commit()
    forced.grow([9, 9, 9])
    forced.release()
    assert cache.match([5, 6, 7, 8, 9], ROOT) == 2


def test_a_tail_is_evicted_before_its_head() -> None:
    """The shared beginning is worth most, so it goes last."""
    cache = PrefixCache(4, 2)
    run(cache, [1, 2, 3, 4, 5, 6])
    run(cache, [7, 8, 9])
    assert cache.match([1, 2, 3, 4, 5, 6, 7], ROOT) == 4


def test_listeners_hear_each_block_once_with_parent_and_ids() -> None:
    heard: list[Stored | Removed] = []
    cache = PrefixCache(3, 2, heard.append)
    run(cache, [1, 2, 3, 4])
    run(cache, [1, 2, 3, 4, 5, 6])
    names = chain([1, 2, 3, 4, 5, 6], ROOT, 2)
    assert heard == [Stored(names[:2], None, [1, 2, 3, 4]), Stored(names[2:], names[1], [5, 6])]
    heard.clear()
    run(cache, [9, 9])
    assert heard[0] == Removed(names[2:])


def test_hits_and_queries_are_counted_in_tokens() -> None:
    cache = PrefixCache(10, 2)
    run(cache, [1, 2, 3])
    run(cache, [1, 2, 3])
    assert (cache.queried_tokens, cache.hit_tokens) == (6, 2)


class Told:
    """What a listener believes to be in the cache; it complains about blocks told twice or of the wrong size."""

    def __init__(self, block: int) -> None:
        self.parents: dict[int, int | None] = {}
        self._block = block

    def __call__(self, event: Stored | Removed) -> None:
        if isinstance(event, Removed):
            for name in event.hashes:
                del self.parents[name]
            return
        assert len(event.token_ids) == len(event.hashes) * self._block
        parent = event.parent
        for name in event.hashes:
            assert name not in self.parents
            self.parents[name], parent = parent, name


def act(leases: list[tuple[Lease, bool]], which: int, action: str, ids: list[int]) -> None:
    lease, committed = leases[which]
    if action == "commit" and not committed:
        lease.commit()
        leases[which] = (lease, True)
    elif action == "grow" and committed:
        lease.grow(ids)
    elif action == "release":
        lease.release()
        del leases[which]


small_ids = st.lists(st.integers(0, 1), max_size=12)
step = st.tuples(st.sampled_from(["take", "force", "commit", "grow", "release"]), st.integers(0, 3), small_ids)


@given(st.integers(0, 8), st.integers(1, 3), st.lists(step, max_size=40))
def test_the_laws_hold_whatever_happens(capacity: int, block: int, steps: list[tuple[str, int, list[int]]]) -> None:
    """Capacity, prefix-closed contents as the events tell them, hits short of the prompt, all given back at the end."""
    told = Told(block)
    cache = PrefixCache(capacity, block, told)
    leases: list[tuple[Lease, bool]] = []
    for action, which, ids in steps:
        if action in ("take", "force"):
            lease = cache.take(ids, ROOT, force=action == "force")
            assert lease is not None or action == "take"
            if lease is not None:
                assert lease.hit_tokens < max(1, len(ids))
                leases.append((lease, False))
        elif which < len(leases):
            act(leases, which, action, ids)
        assert cache.pool.named + cache.pool.reserved <= capacity
        assert cache.pool.reserved >= 0
        assert len(told.parents) == cache.pool.named
        assert all(parent is None or parent in told.parents for parent in told.parents.values())
    for lease, _ in leases:
        lease.release()
    assert cache.pool.in_use == 0
