"""The block pool: counts, idleness and eviction."""

from hypothesis import given
from hypothesis import strategies as st

from backends.block_pool import BlockPool, Removed


def fill(pool: BlockPool, name: int) -> None:
    assert pool.reserve(1)
    pool.reserved -= 1
    pool.use(name)


def test_an_unused_block_stays_until_its_room_is_needed() -> None:
    """What nobody uses is idle, not gone."""
    pool = BlockPool(2)
    fill(pool, 1)
    pool.unuse(1)
    assert 1 in pool
    assert pool.idle == 1
    assert pool.in_use == 0


def test_the_block_released_first_is_evicted_first_and_said_so() -> None:
    """Eviction follows the order of release, and its listener hears the name."""
    heard: list[object] = []
    pool = BlockPool(2, heard.append)
    fill(pool, 1)
    fill(pool, 2)
    pool.unuse(2)
    pool.unuse(1)
    fill(pool, 3)
    assert heard == [Removed([2])]
    assert 1 in pool


def test_a_block_in_use_cannot_be_evicted() -> None:
    """Room held by running sequences is not given away."""
    pool = BlockPool(1)
    fill(pool, 1)
    assert not pool.reserve(1)
    assert 1 in pool


def test_room_leaves_out_the_blocks_that_must_stay() -> None:
    """An idle block that is about to be hit is no room for something else."""
    pool = BlockPool(2)
    fill(pool, 1)
    pool.unuse(1)
    assert pool.room() == 2
    assert pool.room(keep=[1]) == 1


@given(st.integers(1, 5), st.lists(st.tuples(st.sampled_from(["fill", "unuse"]), st.integers(0, 8)), max_size=40))
def test_named_and_reserved_never_exceed_the_capacity(capacity: int, steps: list[tuple[str, int]]) -> None:
    """The law of the pool, whatever is done to it."""
    pool, users = BlockPool(capacity), dict.fromkeys(range(9), 0)
    for step, name in steps:
        if step == "fill" and (name in pool or pool.reserve(1)):
            if name not in pool:
                pool.reserved -= 1
            pool.use(name)
            users[name] += 1
        elif step == "unuse" and users[name]:
            pool.unuse(name)
            users[name] -= 1
        assert pool.named + pool.reserved <= capacity
        assert pool.idle == pool.named - sum(1 for count in users.values() if count)
        assert all(name in pool for name, count in users.items() if count)
