"""Counted blocks and who goes first: the part of the prefix cache that knows names but not what they stand for.

A named block can be found again; a reserved one is room that a running sequence has and has not filled. Law: named
blocks plus reserved ones never exceed the capacity, and the idle blocks are exactly the named ones that nobody uses.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks that can be hit from now on, in chain order; `parent` is the block before the first, None at a
    beginning."""

    hashes: Sequence[int]
    parent: int | None
    token_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Removed:
    hashes: Sequence[int]


Listener = Callable[[Stored | Removed], None]


class BlockPool:
    """A bounded set of blocks with use counts; what nobody uses stays until the room is needed, oldest release
    first."""

    def __init__(self, capacity: int, listener: Listener | None = None) -> None:
        self.capacity = capacity
        self.reserved = 0
        self._listener = listener
        self._uses: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, name: int) -> bool:
        return name in self._uses

    def __repr__(self) -> str:
        return f"<BlockPool {self.named} named, {self.idle} idle, {self.reserved} reserved of {self.capacity}>"

    @property
    def named(self) -> int:
        return len(self._uses)

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def in_use(self) -> int:
        return self.named - self.idle + self.reserved

    def room(self, keep: Sequence[int] = ()) -> int:
        """How many blocks could be reserved now if those of `keep` had to stay."""
        return self.capacity - self.in_use - sum(1 for name in keep if name in self._idle)

    def use(self, name: int) -> None:
        """One more user, of a block that is here or of one that takes its name now (its room is the caller's)."""
        self._uses[name] = self._uses.get(name, 0) + 1
        self._idle.pop(name, None)

    def unuse(self, name: int) -> None:
        self._uses[name] -= 1
        if not self._uses[name]:
            self._idle[name] = None

    def reserve(self, blocks: int) -> bool:
        """Takes room, evicting idle blocks for it; False, and nothing done, where running sequences hold too much."""
        missing = self.named + self.reserved + blocks - self.capacity
        if missing > self.idle:
            return False
        gone = [self._idle.popitem(last=False)[0] for _ in range(missing)]
        for name in gone:
            del self._uses[name]
        if gone:
            self.tell(Removed(gone))
        self.reserved += blocks
        return True

    def tell(self, event: Stored | Removed) -> None:
        if self._listener is not None:
            self._listener(event)
