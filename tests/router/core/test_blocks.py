"""Blocks by their tokens: whatever engines say in whatever order, the index is what a plain set of prefixes says."""

from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router.core.blocks import LONGEST_ADAPTER, MOST_ADAPTERS, MOST_SIZES, Blocks, Name, chain, packed, root_of

SIZE = 2
Prefix = tuple[int, ...]


def own_name(prefix: Prefix, adapter: str | None = None) -> int:
    return chain(packed(prefix), SIZE, root_of(adapter))[-1]


class Engine:
    """A worker's cache as it names its own blocks, some by numbers and some by bytes, as engines do."""

    def __init__(self, worker: str, blocks: Blocks) -> None:
        self.worker, self.blocks = worker, blocks
        self.held: dict[tuple[Prefix, str | None], None] = {}

    def name(self, prefix: Prefix, adapter: str | None) -> Name:
        text = repr((self.worker, prefix, adapter))
        number = sum(ord(letter) * 257**at for at, letter in enumerate(text)) % 2**64
        return number if self.worker == "a" else number.to_bytes(8, "big")

    def compute(self, tokens: Prefix, adapter: str | None = None) -> bool:
        """Store what of this prompt is not there yet, as one event."""
        whole = [tokens[:end] for end in range(SIZE, len(tokens) + 1, SIZE)]
        new = [prefix for prefix in whole if (prefix, adapter) not in self.held]
        if not new:
            return True
        before = new[0][:-SIZE]
        parent = self.name(before, adapter) if before else None
        names = [self.name(prefix, adapter) for prefix in new]
        ids = packed(tokens[len(before) : len(whole) * SIZE])
        if not self.blocks.store(self.worker, names, parent, ids, SIZE, adapter):
            return False
        self.held |= dict.fromkeys((prefix, adapter) for prefix in new)
        return True

    def evict(self) -> None:
        """The last of the longest goes, which nothing follows."""
        if self.held:
            last = max(self.held, key=lambda held: len(held[0]))
            del self.held[last]
            self.blocks.remove(self.worker, [self.name(*last)])


PROMPT = st.lists(st.integers(0, 1), min_size=1, max_size=9).map(tuple)
WORKER = st.sampled_from(["a", "b", "c"])


class Follow(RuleBasedStateMachine):
    """Three workers store, evict, clear, are lost and leave; a set of prefixes a worker is the truth."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = Blocks()
        self.engines: dict[str, Engine] = {}

    def engine(self, worker: str) -> Engine:
        return self.engines.setdefault(worker, Engine(worker, self.blocks))

    @rule(worker=WORKER, tokens=PROMPT, adapter=st.sampled_from([None, None, "x"]))
    def compute(self, worker: str, tokens: Prefix, adapter: str | None) -> None:
        assert self.engine(worker).compute(tokens, adapter)

    @rule(worker=WORKER)
    def evict(self, worker: str) -> None:
        self.engine(worker).evict()

    @rule(worker=WORKER)
    def clear(self, worker: str) -> None:
        self.engine(worker).held.clear()
        self.blocks.clear(worker)
        assert self.blocks.view(worker).complete

    @rule(worker=WORKER)
    def lose(self, worker: str) -> None:
        self.engine(worker).held.clear()
        self.blocks.lose(worker)
        assert not self.blocks.view(worker).complete

    @rule(worker=WORKER)
    def forget(self, worker: str) -> None:
        self.engines.pop(worker, None)
        self.blocks.forget(worker)
        assert worker not in self.blocks.views

    @invariant()
    def the_index_is_the_sets(self) -> None:
        expected: dict[int, int] = {}
        for worker, engine in self.engines.items():
            for prefix, adapter in engine.held:
                own = own_name(prefix, adapter)
                expected[own] = expected.get(own, 0) | self.blocks.views[worker].bit
        assert self.blocks.holders == expected
        assert len(self.blocks) == len(expected)

    @invariant()
    def nobody_holds_what_it_removed_and_bits_are_of_the_followed(self) -> None:
        bits = [view.bit for view in self.blocks.views.values()]
        assert len(set(bits)) == len(bits)
        assert self.blocks.followed == sum(bits)
        for own, holding in self.blocks.holders.items():
            assert not holding & self.blocks.gone(own)
        for gone in (self.blocks._gone, self.blocks._gone_before):
            assert all(not held & ~self.blocks.followed for held in gone.values())


TestFollow = Follow.TestCase


def stored(blocks: Blocks, worker: str, tokens: list[int], **fields: Any) -> bool:
    given = {"names": list(range(1, len(tokens) // SIZE + 1)), "parent": None, "size": SIZE} | fields
    return blocks.store(worker, given.pop("names"), given.pop("parent"), packed(tokens), **given)


@pytest.fixture
def blocks() -> Blocks:
    return Blocks()


@given(st.lists(st.integers(0, 2**63), max_size=20), st.integers(1, 4))
def test_a_name_stands_for_the_whole_beginning(tokens: list[int], size: int) -> None:
    names = chain(packed(tokens), size, 0)
    assert len(names) == len(tokens) // size
    for at in range(len(names)):
        assert chain(packed(tokens[: (at + 1) * size]), size, 0) == names[: at + 1]
        assert chain(packed(tokens[at * size :]), size, names[at - 1] if at else 0) == names[at:]
    assert len(set(names)) == len(names)


def test_names_are_the_same_in_every_process() -> None:
    assert chain(packed([1, 2, 3, 4]), 2, 0) == [571542372673154031, 14564038367669076576]
    assert root_of("adapter") == 2828154321540098997


@pytest.mark.parametrize("wrong", [[-1], [2**64], ["x"], [1.5], [None], [[1, 2]]])
def test_what_is_no_token_is_an_error(wrong: list[Any]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        packed(wrong)


def test_an_adapters_blocks_are_its_own(blocks: Blocks) -> None:
    assert stored(blocks, "a", [1, 2])
    assert stored(blocks, "a", [1, 2], names=[9], adapter="x")
    assert len(blocks) == 2
    assert blocks.adapters == {"x"}


def test_blocks_after_an_unknown_one_cannot_be_named(blocks: Blocks) -> None:
    assert not stored(blocks, "a", [1, 2], parent=77)
    assert len(blocks) == 0


@pytest.mark.parametrize(
    "fields", [{"names": [1, 2]}, {"names": []}, {"size": 0}, {"size": -2}, {"size": 10**9}, {"size": 3}]
)
def test_an_event_that_makes_no_sense_changes_nothing(blocks: Blocks, fields: dict[str, Any]) -> None:
    assert not stored(blocks, "a", [1, 2], **fields)
    assert (len(blocks), blocks.sizes, blocks.version) == (0, set(), 0)


def test_block_sizes_and_adapters_are_bounded(blocks: Blocks) -> None:
    for size in range(1, MOST_SIZES + 1):
        assert stored(blocks, "a", [1] * size, names=[size], size=size)
    assert not stored(blocks, "a", [1] * 99, names=[99], size=99)
    assert not stored(blocks, "a", [1, 2], adapter="x" * (LONGEST_ADAPTER + 1))
    for number in range(MOST_ADAPTERS + 5):
        stored(blocks, "a", [1, 2], names=[number], adapter=f"{number}")
    assert len(blocks.adapters) == MOST_ADAPTERS
    assert blocks.version == MOST_SIZES + MOST_ADAPTERS


def test_a_name_that_comes_to_stand_for_other_tokens_is_let_go_of(blocks: Blocks) -> None:
    stored(blocks, "a", [1, 2], names=[5])
    stored(blocks, "a", [3, 4], names=[5])
    assert set(blocks.holders) == {own_name((3, 4))}


def test_a_worker_with_more_blocks_than_are_kept_is_lost_and_begun_anew() -> None:
    blocks = Blocks(most_blocks=3)
    blocks.clear("a")
    assert stored(blocks, "a", [1, 2, 3, 4], names=[1, 2])
    assert not stored(blocks, "a", [5, 6, 7, 8], names=[3, 4])
    assert len(blocks) == 0
    assert not blocks.view("a").complete
    assert stored(blocks, "a", [1, 2], names=[1])


def test_what_was_removed_is_remembered_within_bounds() -> None:
    blocks = Blocks(most_gone=10)
    for number in range(100):
        stored(blocks, "a", [number, 0], names=[number])
        blocks.remove("a", [number])
    assert len(blocks._gone) + len(blocks._gone_before) <= 20
    assert blocks.seen(own_name((99, 0)))
    assert not blocks.seen(own_name((5, 0)))


def test_what_is_stored_again_is_removed_no_more(blocks: Blocks) -> None:
    own, bit = own_name((1, 2)), blocks.view("a").bit
    stored(blocks, "a", [1, 2], names=[1])
    stored(blocks, "b", [1, 2], names=[1])
    blocks.remove("a", [1])
    blocks.remove("b", [1])
    assert blocks.gone(own) & bit
    stored(blocks, "a", [1, 2], names=[1])
    assert not blocks.gone(own) & bit
    assert blocks.gone(own) == blocks.view("b").bit


def test_removing_what_is_not_there_is_nothing(blocks: Blocks) -> None:
    blocks.remove("a", [1, b"x"])
    assert not blocks.holders
    assert not blocks._gone


@pytest.mark.parametrize("end", [Blocks.lose, Blocks.forget])
def test_what_is_lost_does_not_count_as_removed(blocks: Blocks, end: Callable[[Blocks, str], None]) -> None:
    stored(blocks, "a", [1, 2])
    end(blocks, "a")
    assert not blocks.seen(own_name((1, 2)))


def test_many_workers_can_come_and_go(blocks: Blocks) -> None:
    """Bits are used again, so that they stay small numbers."""
    for number in range(300):
        stored(blocks, f"w{number}", [1, 2])
        blocks.remove(f"w{number}", [1])
        if number >= 3:
            blocks.forget(f"w{number - 3}")
    assert blocks.followed < 2**4
    assert blocks.gone(own_name((1, 2))) == blocks.followed


def test_tokens_are_read_from_any_array_of_them() -> None:
    assert chain(array("Q", [1, 2]), 2, 0) == chain(packed((1, 2)), 2, 0)
