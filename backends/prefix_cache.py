"""A prefix cache over blocks of token ids, with real eviction and real sharing.

The scheme is vLLM's automatic prefix caching: a full block is named by the hash of its ids and of the block before
it, so a name stands for a whole beginning; blocks in use are counted and cannot be evicted; blocks in use by nobody
stay until the room is needed, the least recently released first, a sequence's tail before its head. Hits are whole
blocks and never the whole prompt, because the model must compute at least one token to have something to sample from.
Where it differs: equal blocks are kept once, also when two sequences compute them side by side.

It knows no time, no model and no HTTP. Hashing is xxh3 with 64 bits: stable over processes and machines.
"""

from array import array
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from backends.block_pool import BlockPool, Listener, Stored


def root_of(model: str, salt: str | None = None) -> int:
    """The start of a chain. An absent salt and an empty one are different starts."""
    text = model if salt is None else f"{model}\0{salt}"
    return xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def chain(ids: Sequence[int], root: int, block_tokens: int) -> list[int]:
    """The names of all full blocks of `ids`, each hashed over its parent's name and its own ids."""
    packed = array("Q", ids)
    names: list[int] = []
    parent = root
    for start in range(0, len(packed) - block_tokens + 1, block_tokens):
        parent = xxh3_64_intdigest(parent.to_bytes(8, "little") + packed[start : start + block_tokens].tobytes())
        names.append(parent)
    return names


class PrefixCache:
    """Beginnings that need not be computed again."""

    def __init__(self, capacity: int, block_tokens: int, listener: Listener | None = None) -> None:
        self.pool = BlockPool(capacity, listener)
        self.block_tokens = block_tokens
        self.queried_tokens = 0
        self.hit_tokens = 0

    def __repr__(self) -> str:
        return f"<PrefixCache of {self.block_tokens}-token blocks, {self.pool!r}>"

    @property
    def usage(self) -> float:
        return self.pool.in_use / self.pool.capacity if self.pool.capacity else 0.0

    def match(self, ids: Sequence[int], root: int) -> int:
        """How many leading tokens would be hit now. Looks only: neither order nor counts change."""
        usable = ids[: max(0, len(ids) - 1)]
        return self._depth(chain(usable, root, self.block_tokens)) * self.block_tokens

    def names(self, ids: Sequence[int], root: int) -> list[int]:
        return chain(ids, root, self.block_tokens)

    def take(
        self, ids: Sequence[int], root: int, names: Sequence[int] | None = None, *, force: bool = False
    ) -> "Lease | None":
        """A lease on the cached beginning and on room for the rest, or None while running sequences hold that room.

        With `force` it takes what room there is; the prompt's tail is then computed but never cached. Who may have to
        ask again and again keeps the `names` and hands them in: hashing a long prompt is the dear part.
        """
        names = self.names(ids, root) if names is None else names
        hits = names[: self._depth(names[: max(0, len(ids) - 1) // self.block_tokens])]
        wanted = blocks_for(len(ids), self.block_tokens) - len(hits)
        room = self.pool.room(keep=hits)
        if wanted > room and not force:
            return None
        for name in hits:
            self.pool.use(name)
        self.pool.reserve(min(wanted, room))
        self.queried_tokens += len(ids)
        self.hit_tokens += len(hits) * self.block_tokens
        return Lease(self, ids, root, list(names), held=len(hits), room=min(wanted, room))

    def _depth(self, names: Sequence[int]) -> int:
        return next((depth for depth, name in enumerate(names) if name not in self.pool), len(names))


def blocks_for(tokens: int, block_tokens: int) -> int:
    return -(-tokens // block_tokens)


class Lease:
    """A sequence's share of the cache, from admission to its end. Given back exactly once, by `release`.

    Computed blocks get their names by `commit`, not before: an aborted prefill leaves nothing that could be hit.
    """

    def __init__(
        self, cache: PrefixCache, ids: Sequence[int], root: int, names: list[int], *, held: int, room: int
    ) -> None:
        self.hit_tokens = held * cache.block_tokens
        self._pool = cache.pool
        self._block = cache.block_tokens
        self._length = len(ids)
        self._tail = list(ids)  # the ids whose blocks have no name yet, and before `commit` the whole prompt
        self._names = names
        self._last = names[-1] if names else root
        self._held = held
        self._room = room
        self._over = False

    def commit(self) -> None:
        """The prompt is computed: its full blocks can be hit from now on, as far as there was room."""
        ids, self._tail = self._tail, self._tail[len(self._names) * self._block :]
        self._name(ids)

    def grow(self, ids: Sequence[int]) -> None:
        """Adds computed output. Without room it is computed all the same, and the chain is cached no further."""
        whole = self._held + self._room == blocks_for(self._length, self._block)
        self._length += len(ids)
        if self._over or not whole:
            return
        wanted = blocks_for(self._length, self._block) - self._held - self._room
        if wanted and not self._pool.reserve(wanted):
            return
        self._room += wanted
        self._tail.extend(ids)
        fresh = chain(self._tail, self._last, self._block)
        if fresh:
            self._names += fresh
            self._last = fresh[-1]
            full, self._tail = self._tail, self._tail[len(fresh) * self._block :]
            self._name(full)

    def release(self) -> None:
        """Gives everything back; named blocks stay findable until their room is needed, the tail's first."""
        if self._over:
            return
        self._over = True
        self._pool.reserved -= self._room
        for name in reversed(self._names[: self._held]):
            self._pool.unuse(name)

    def _name(self, ids: Sequence[int]) -> None:
        """Turns reserved room into named blocks. A block that is here already gives its room back.

        `ids` are the last ones of the chain, whole blocks first. What is new is always an unbroken end of the chain: no
        block outlives the one before it, since a user of a block uses all before it and releases them after it.
        """
        offset = len(self._names) - len(ids) // self._block
        fresh: list[int] = []
        while self._held < len(self._names) and self._room:
            name = self._names[self._held]
            if name not in self._pool:
                fresh.append(name)
            self._pool.use(name)
            self._pool.reserved -= 1
            self._room -= 1
            self._held += 1
        if fresh:
            first = self._held - len(fresh)
            start = (first - offset) * self._block
            parent = self._names[first - 1] if first else None
            self._pool.tell(Stored(fresh, parent, ids[start : start + len(fresh) * self._block]))
