"""What the rungs of a prompt are in blocks of tokens: so engines' own word overrules the table of who was sent what.

Rungs are bytes, blocks are tokens. An engine is asked for a prompt's token ids after the prompt was sent (never before:
a decision waits for nothing); then each rung is taken to hold its share of the tokens, rounded down and one block less,
and is remembered with the name of its last block. Whatever prompt shares the rung is judged by that.

When the engines are believed:
- Only rungs count of whose blocks some engine has said something. Prompts that engines read in another way than they
  tokenise them, with images, salts or adapters unknown to us, thus match nothing, and the table decides as ever.
- A worker holds what it said to have stored and not to have removed.
- It does not hold what it said to have removed since it was last sent there; and, with a complete view, nothing else of
  the rungs that count. With an incomplete view the table may know better.
- What was sent there within `GRACE` is held until the engine says that it removed it: blocks are told of only after
  the prefill.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from router.core.blocks import Blocks, View, chain, packed, root_of
from router.types import Fingerprint

GRACE = 20.0  # seconds, and up to twice that: a queue and a prefill, as a rule
MOST_RECENT = 50_000  # hashes a worker, twice; with more traffic the grace is shorter
ENOUGH = 7 / 8  # of a prompt whose blocks are known: asking for the rest would tell little


class Recent:
    """The rungs that a worker was sent lately: between `GRACE` and twice as long ago."""

    __slots__ = ("_before", "_now", "_until")

    def __init__(self) -> None:
        self._now: set[int] = set()
        self._before: set[int] = set()
        self._until = 0.0

    def __contains__(self, rung: int) -> bool:
        return rung in self._now or rung in self._before

    def add(self, rungs: list[int], now: float) -> None:
        if now >= self._until or len(self._now) >= MOST_RECENT:
            self._before = self._now if now < self._until + GRACE else set()
            self._now = set()
            self._until = now + GRACE
        self._now.update(rungs)


class Rungs:
    """Corrects `held`, and learns the blocks of prompts. Bounded in two generations, like the table of holders: what
    was not learnt again before half of `limit` others is forgotten. About 200 bytes a rung.

    matched, fallback: decisions in which the engines had a word, and those left to the table
    """

    def __init__(self, blocks: Blocks, limit: int = 100_000) -> None:
        self.blocks = blocks
        self.limit = limit
        self.matched = self.fallback = 0
        self._young: dict[int, tuple[int, ...]] = {}  # a rung's hash -> its last block's names, one a block size
        self._old: dict[int, tuple[int, ...]] = {}
        self._recent: dict[str, Recent] = {}
        self._version = blocks.version

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def overrule(self, prefix: Fingerprint, held: dict[str, int]) -> None:
        blocks = self.blocks
        if not blocks.followed or not prefix.hashes:
            return
        if self._version != blocks.version:
            self._begin_anew()
        found, deepest = self._find(prefix)
        if not deepest:
            self.fallback += 1
            return
        self.matched += 1
        told: dict[str, int] = {}
        for bits, depth in found:
            while bits:
                bit = bits & -bits
                bits ^= bit
                told[blocks.workers[bit]] = depth
        for worker, believed in [*held.items()]:
            depth = told.get(worker, 0)
            if depth < believed and depth < deepest and worker in blocks.views:
                self._lower(prefix, held, worker, blocks.views[worker], depth)
        for worker, depth in told.items():
            if depth > held.get(worker, 0):
                held[worker] = depth

    def _find(self, prefix: Fingerprint) -> tuple[list[tuple[int, int]], int]:
        """(bits of workers, the deepest rung that they hold), deepest first; and the deepest rung that counts.

        Without the first block nothing that follows is of use, so who lacks the first rung known holds none.
        """
        young, old, holders = self._young, self._old, self.blocks.holders
        depths, hashes = prefix.depths, prefix.hashes
        left, first = 0, len(hashes)  # the workers not placed yet
        for at, rung in enumerate(hashes):
            owns = young.get(rung) or old.get(rung)
            if owns:
                first = at
                for own in owns:
                    left |= holders.get(own, 0)
                break
        found: list[tuple[int, int]] = []
        deepest = 0
        for at in range(len(hashes) - 1, first - 1, -1):
            rung = hashes[at]
            for own in young.get(rung) or old.get(rung, ()):
                bits = holders.get(own, 0)
                if not deepest and (bits or self.blocks.seen(own)):
                    deepest = depths[at]
                bits &= left
                if bits:
                    found.append((bits, depths[at]))
                    left &= ~bits
            if deepest and not left:
                break
        return found, deepest

    def _lower(self, prefix: Fingerprint, held: dict[str, int], worker: str, view: View, depth: int) -> None:
        """The table says that the worker holds more than `depth`, which is all that it told of."""
        last = bisect_right(prefix.depths, held[worker]) - 1
        recent = self._recent.get(worker)
        promised = recent is not None and prefix.hashes[last] in recent
        if promised or not view.complete:
            first = bisect_right(prefix.depths, depth)
            removed = next((at for at in range(first, last + 1) if self._removed(prefix.hashes[at], view)), None)
            if removed is None:
                return
            depth = max(depth, prefix.depths[removed - 1] if removed else 0)
        if depth:
            held[worker] = depth
        else:
            del held[worker]

    def sent(self, prefix: Fingerprint, worker: str, now: float) -> bool:
        """A prompt was sent there. True when its blocks are worth learning, for which its token ids are needed."""
        self.heard(prefix.hashes, worker, now)
        blocks = self.blocks
        return bool(blocks.sizes and prefix.hashes) and worker in blocks.views and self.wanted(prefix)

    def heard(self, hashes: list[int], worker: str, now: float) -> None:
        """A prompt with these rungs was sent there, maybe by another gateway."""
        view = self.blocks.views.get(worker)
        if view is None or not hashes:
            return
        recent = self._recent.get(worker)
        if recent is None:
            recent = self._recent[worker] = Recent()
        recent.add(hashes, now)
        self.blocks.promise(self._known(hashes), view)

    def wanted(self, prefix: Fingerprint) -> bool:
        """Much of this prompt is not known in blocks, or was learnt long ago."""
        young = self._young
        enough = prefix.depths[-1] * ENOUGH
        for at in range(len(prefix.hashes) - 1, -1, -1):
            if prefix.depths[at] < enough:
                return True
            if prefix.hashes[at] in young:
                return self._version != self.blocks.version
        return True

    def learn(self, prefix: Fingerprint, tokens: Sequence[int], worker: str, model: str | None) -> bool:
        """The worker reads this prompt as these tokens. False when they are none."""
        blocks = self.blocks
        if self._version != blocks.version:
            self._begin_anew()
        try:
            ids = packed(tokens)
        except (TypeError, OverflowError, ValueError):
            return False
        length = prefix.tokens * prefix.bytes_a_token
        if not length:
            return False
        root = root_of(model if model in blocks.adapters else None)
        chains = [(size, chain(ids, size, root)) for size in sorted(blocks.sizes)]
        for rung, depth in zip(prefix.hashes, prefix.depths, strict=True):
            share = min(1.0, depth / length) * len(ids)
            lasts = [(int(share // size) - 2, names) for size, names in chains]
            whole = all(last >= 0 for last, _ in lasts)  # else who has blocks of that size would seem to lack it
            self._young[rung] = tuple(names[last] for last, names in lasts) if whole else ()
        self._turn_over()
        view = blocks.views.get(worker)
        if view is not None:
            blocks.promise(self._known(prefix.hashes), view)
        return True

    def pass_over(self, prefix: Fingerprint) -> None:
        """The blocks of this prompt cannot be learnt; it is not worth trying again soon."""
        if self._version != self.blocks.version:
            self._begin_anew()
        for rung in prefix.hashes:
            self._young.setdefault(rung, ())
        self._turn_over()

    def forget(self, worker: str) -> None:
        """The worker is known no more."""
        self._recent.pop(worker, None)
        self.blocks.forget(worker)

    def _begin_anew(self) -> None:
        """Block sizes or adapters turned up that what is known does not take into account."""
        self._young, self._old = {}, {}
        self._version = self.blocks.version

    def _turn_over(self) -> None:
        if len(self._young) >= self.limit // 2:
            self._old, self._young = self._young, {}

    def _known(self, hashes: list[int]) -> Iterator[int]:
        """The names of the rungs' blocks, the deepest first."""
        young, old = self._young, self._old
        for rung in reversed(hashes):
            owns = young.get(rung) or old.get(rung)
            if owns:
                yield from owns

    def _removed(self, rung: int, view: View) -> bool:
        return any(self.blocks.gone(own) & view.bit for own in self._young.get(rung) or self._old.get(rung, ()))
