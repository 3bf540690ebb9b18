"""Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2016), the load in prefill tokens.

The mode with no state: a worker's place follows from the prompt's first `key_bytes`, the fleet, and the load. The first
worker in ring order is taken whose wait is at most `bound` times the mean wait plus the tokens that a move would
recompute; one with nothing in flight always fits. If none does, the least loaded: never the home for being home.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict, Field

from router.contracts import Ask, Candidate, PolicyTools, Ranked, Ring
from router.core.balance import by_work
from router.types import Reason


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    bound: float = Field(1.25, ge=1, description="times the mean wait that a worker may be at")
    key_bytes: int = Field(1024, ge=64, description="bytes of the prompt's beginning that decide its place")


class PrefixBounded:
    def __init__(self, options: Options, ring: Ring) -> None:
        self.options = options
        self.ring = ring

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        if not ask.prefix.tokens or not candidates:
            yield from by_work(candidates, now)
            return
        key, depth = self._key(ask)
        seats = {c.id: c for c in candidates}
        walk = [seats[worker] for worker in self.ring.walk(key) if worker in seats]
        mean = sum(c.wait(now) for c in walk) / len(walk)
        limit = self.options.bound * mean + depth / ask.prefix.bytes_a_token
        fitting = [c for c in walk if not c.load.in_flight + c.load.elsewhere or c.wait(now) / c.speed <= limit]
        for c in fitting:
            yield Ranked(c.id, Reason.HOME if c is walk[0] else Reason.SPILL, 0.0, c.wait(now))
        full = [c for c in walk if c not in fitting]
        yield from by_work(full, now, Reason.SPILL)

    def _key(self, ask: Ask) -> tuple[int, int]:
        """The deepest rung within `key_bytes`; a prompt shorter than any rung is hashed whole."""
        prefix = ask.prefix
        if not prefix.hashes:
            return prefix.whole, 0
        at = max((at for at, depth in enumerate(prefix.depths) if depth <= self.options.key_bytes), default=0)
        return prefix.hashes[at], prefix.depths[at]


def build(options: Options, tools: PolicyTools) -> PrefixBounded:
    return PrefixBounded(options, tools.ring)
