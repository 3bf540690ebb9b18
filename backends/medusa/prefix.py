"""The prefix cache with what its names stand for: keys and values of whole blocks, kept beside the slab.

Which blocks there are, who uses them and which one goes first is `PrefixCache`'s; here each of its names has a place. A
row that hits blocks gets a copy of them at its seat, and a row's own blocks are copied into their places as they get
their names. A copy costs a thousandth of what computing it costs, and leaves attention one slice a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import torch

from backends.block_pool import Removed, Stored
from backends.medusa.kv import Slab
from backends.prefix_cache import Lease, PrefixCache

DEFAULT_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True)
class Block:
    """`place` in the store, and `depth`: how many blocks come before it in its chain."""

    place: int
    depth: int


class PrefixStore:
    """Keys and values of named blocks: [L, blocks, block_tokens, 2*K*E], of the slab's type and on its device."""

    def __init__(self, slab: Slab, blocks: int, block_tokens: int) -> None:
        self.cache = PrefixCache(blocks, block_tokens, self._hear)
        self._events: list[Stored | Removed] = []
        self._slab = slab
        layers, _, width = slab.kept.shape
        self._kept = torch.empty(  # memory is taken as it is written
            layers, blocks, block_tokens, width, dtype=slab.kept.dtype, device=slab.kept.device
        )
        self._blocks: dict[int, Block] = {}
        self._free = list(range(blocks))  # a heap: blocks that are named together lie side by side, as far as may be
        self._seat = 0  # of the row whose blocks are getting their names

    @property
    def block_tokens(self) -> int:
        return self.cache.block_tokens

    def take_events(self) -> list[Stored | Removed]:
        """What was stored and removed since the last call, in order."""
        events, self._events = self._events, []
        return events

    def depth(self, names: Sequence[int], tokens: int) -> int:
        """How many leading blocks a prompt of so many tokens would hit: never the whole of it."""
        usable = names[: max(0, tokens - 1) // self.block_tokens]
        return next((at for at, name in enumerate(usable) if name not in self.cache.pool), len(usable))

    def load(self, names: Sequence[int], seat: int) -> None:
        """Copies these blocks, the first ones of a chain, to the seat's beginning."""
        size = self.block_tokens
        for at, place, count in runs([self._blocks[name].place for name in names]):
            kept = self._kept[:, place : place + count].flatten(1, 2)
            self._slab.slice(seat, at * size, (at + count) * size).copy_(kept)

    def commit(self, lease: Lease, seat: int) -> None:
        """The prompt lies computed at the seat: its blocks are kept, as far as there was room."""
        self._seat = seat
        lease.commit()

    def grow(self, lease: Lease, seat: int, ids: Sequence[int]) -> None:
        """So does this output, behind all that came before it."""
        self._seat = seat
        lease.grow(ids)

    def _hear(self, event: Stored | Removed) -> None:
        self._events.append(event)
        if isinstance(event, Removed):
            for name in event.hashes:
                heappush(self._free, self._blocks.pop(name).place)
            return
        first = 0 if event.parent is None else self._blocks[event.parent].depth + 1
        places = [heappop(self._free) for _ in event.hashes]
        for at, (name, place) in enumerate(zip(event.hashes, places, strict=True)):
            self._blocks[name] = Block(place, first + at)
        start, end = first * self.block_tokens, (first + len(places)) * self.block_tokens
        computed = self._slab.slice(self._seat, start, end).unflatten(1, (-1, self.block_tokens))
        for at, place, count in runs(places):
            self._kept[:, place : place + count] = computed[:, at : at + count]


def runs(places: Sequence[int]) -> list[tuple[int, int, int]]:
    """Places that ascend by one, together: (where in `places`, first place, how many). One copy each."""
    found: list[tuple[int, int, int]] = []
    for at, place in enumerate(places):
        if found and place == sum(found[-1][1:]):
            start, first, count = found[-1]
            found[-1] = (start, first, count + 1)
        else:
            found.append((at, place, 1))
    return found


def blocks_in(size: int, slab: Slab, block_tokens: int) -> int:
    """How many blocks fit into so many bytes."""
    layers, _, width = slab.kept.shape
    return int(size // (layers * block_tokens * width * slab.kept.element_size()))
