"""Which workers hold which blocks of tokens, as their own KV-cache events say it.

Engines name their blocks by hashes that nobody else can compute. So every block gets a name of ours as well: the hash
of its token ids, seeded with the name of the block before it. Equal beginnings have equal names on all workers. An
adapter's blocks begin with the adapter's name, since its caches are its own.

A worker's view is `complete` when all that it holds is known: its events were followed from its start, or from the
moment it said that it had cleared its cache. Otherwise blocks may be there of which nothing was heard. What a worker
said to have removed is remembered for a while: that is knowledge too, and it shows that a name is one that engines use.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from xxhash import xxh3_64_intdigest

Name = int | bytes  # an engine's own name of a block

MOST_BLOCKS = 262_144  # a worker: four million tokens at 16 a block, 40 MB here; one that has more is begun anew
MOST_GONE = 65_536  # names remembered as removed, twice
MOST_SIZES = 4
MOST_BLOCK_TOKENS = 65_536
MOST_ADAPTERS, LONGEST_ADAPTER = 1000, 256


def root_of(adapter: str | None) -> int:
    """The name before the first block."""
    return 0 if adapter is None else xxh3_64_intdigest(adapter.encode("utf-8", "surrogatepass"), 1)


def chain(tokens: array[int], size: int, parent: int) -> list[int]:
    """The names of all whole blocks of `tokens`, which follow the block `parent`."""
    raw = memoryview(tokens).cast("B")
    width = size * tokens.itemsize
    names = []
    for start in range(0, len(raw) - width + 1, width):
        parent = xxh3_64_intdigest(raw[start : start + width], parent)
        names.append(parent)
    return names


def packed(tokens: Sequence[int]) -> array[int]:
    """Token ids in the form that is hashed. Raises what `array` does for what is no token id."""
    return array("Q", tokens)


class View:
    """One worker's blocks: the engine's name -> ours. `bit` stands for the worker wherever holders are counted."""

    __slots__ = ("bit", "complete", "names")

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.names: dict[Name, int] = {}
        self.complete = False


class Blocks:
    """holders: our name -> the bits of the workers that hold that block
    views: of the workers of which anything was heard; workers: the same by their bits
    followed: the bits of all workers of which anything was heard
    version: changes when a block size or an adapter turns up for the first time: names of prompts are made for those
    """

    def __init__(self, most_blocks: int = MOST_BLOCKS, most_gone: int = MOST_GONE) -> None:
        self.views: dict[str, View] = {}
        self.workers: dict[int, str] = {}
        self.holders: dict[int, int] = {}
        self.sizes: set[int] = set()
        self.adapters: set[str] = set()
        self.version = self.followed = 0
        self._most_blocks, self._most_gone = most_blocks, most_gone
        self._gone: dict[int, int] = {}
        self._gone_before: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.holders)

    # What engines say.

    def store(
        self, worker: str, names: Sequence[Name], parent: Name | None, tokens: array[int], size: int,
        adapter: str | None = None,
    ) -> bool:  # fmt: skip
        """These blocks are there now, in their order, after `parent`. False when they cannot be named: nothing was
        heard of the parent, or the event makes no sense."""
        view = self.view(worker)
        if len(tokens) != len(names) * size or not self._known(size, adapter):
            return False
        before = root_of(adapter) if parent is None else view.names.get(parent)
        if before is None:
            return False
        if len(view.names) + len(names) > self._most_blocks:
            self.lose(worker)
            return False
        known, holders, bit = view.names, self.holders, view.bit
        gone, gone_before = self._gone, self._gone_before
        for name, own in zip(names, chain(tokens, size, before), strict=True):
            if known.get(name, own) != own:
                self._drop(view, name)
            known[name] = own
            holders[own] = holders.get(own, 0) | bit
            if own in gone or own in gone_before:
                self.unsay(own, bit)
        return True

    def remove(self, worker: str, names: Sequence[Name]) -> None:
        view = self.view(worker)
        for name in names:
            if name in view.names:
                self._drop(view, name)

    def clear(self, worker: str) -> None:
        """Nothing is there any more; from now on everything will be heard."""
        view = self.view(worker)
        owns = [*view.names.values()]
        self.lose(worker)
        for own in owns[-self._most_gone :]:
            self._gone[own] = self.gone(own) | view.bit
        self._turn_over()
        view.complete = True

    def lose(self, worker: str) -> None:
        """Something was missed: what is there is unknown."""
        view = self.view(worker)
        holders, others = self.holders, ~view.bit
        for own in view.names.values():
            left = holders.pop(own, 0) & others
            if left:
                holders[own] = left
        view.names = {}
        view.complete = False

    def forget(self, worker: str) -> None:
        """The worker is known no more, or no more followed."""
        if worker not in self.views:
            return
        self.lose(worker)
        bit = self.views.pop(worker).bit
        del self.workers[bit]
        others = ~bit
        self.followed &= others
        self._gone = {own: bits & others for own, bits in self._gone.items() if bits & others}
        self._gone_before = {own: bits & others for own, bits in self._gone_before.items() if bits & others}

    # What is known.

    def view(self, worker: str) -> View:
        """The worker's view; it is followed from the first call on."""
        view = self.views.get(worker)
        if view is None:
            free = ~self.followed & (self.followed + 1)  # the lowest bit that nobody has
            view = self.views[worker] = View(free)
            self.workers[free] = worker
            self.followed |= free
        return view

    def promise(self, owns: Iterable[int], view: View) -> None:
        """The worker will hold these again, deepest first: that it removed them before says nothing any more."""
        gone, gone_before, bit = self._gone, self._gone_before, view.bit
        if not gone and not gone_before:
            return
        holders = self.holders
        for own in owns:
            if own in gone or own in gone_before:
                self.unsay(own, bit)
            elif holders.get(own, 0) & bit:
                return  # and what is before it: blocks leave from their end

    def gone(self, own: int) -> int:
        """The bits of the workers that said they had removed it, and did not store it again; 0 also for none known."""
        return self._gone.get(own) or self._gone_before.get(own, 0)

    def unsay(self, own: int, bit: int) -> None:
        """That this worker removed it is no longer so."""
        for gone in (self._gone, self._gone_before):
            bits = gone.get(own)
            if bits is not None and bits & bit:
                gone[own] = bits & ~bit

    def seen(self, own: int) -> bool:
        """Some engine said something of it: it is a name that engines' blocks have."""
        return own in self.holders or own in self._gone or own in self._gone_before

    def _known(self, size: int, adapter: str | None) -> bool:
        if size not in self.sizes:
            if not 0 < size <= MOST_BLOCK_TOKENS or len(self.sizes) >= MOST_SIZES:
                return False
            self.sizes.add(size)
            self.version += 1
        if adapter is not None and adapter not in self.adapters:
            if len(self.adapters) >= MOST_ADAPTERS or len(adapter) > LONGEST_ADAPTER:
                return False
            self.adapters.add(adapter)
            self.version += 1
        return True

    def _drop(self, view: View, name: Name) -> None:
        own = view.names.pop(name)
        left = self.holders.pop(own, 0) & ~view.bit
        if left:
            self.holders[own] = left
        self._gone[own] = self.gone(own) | view.bit
        self._turn_over()

    def _turn_over(self) -> None:
        if len(self._gone) >= self._most_gone:
            self._gone_before, self._gone = self._gone, {}
