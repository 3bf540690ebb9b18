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
from router.core.candidates import Candidates, by_name
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
        room = depth / ask.prefix.bytes_a_token
        by_id = by_name(candidates)
        home = next(by_id[worker] for worker in self.ring.walk(key) if worker in by_id)
        at_once = isinstance(candidates, Candidates) and (
            _is_idle(home)
            or home.wait(now) / home.speed <= self.options.bound * candidates.standing.least_mean_wait() + room
        )
        if at_once:  # nearly every caller takes one, and need not know what waits everywhere
            yield Ranked(home.id, Reason.HOME, 0.0, home.wait(now))
        walk = [by_id[worker] for worker in self.ring.walk(key) if worker in by_id]
        limit = self.options.bound * sum(c.wait(now) for c in walk) / len(walk) + room
        fitting = [c for c in walk if _is_idle(c) or c.wait(now) / c.speed <= limit]
        for c in fitting:
            if c is not home or not at_once:
                yield Ranked(c.id, Reason.HOME if c is home else Reason.SPILL, 0.0, c.wait(now))
        fit = {c.id for c in fitting}
        yield from by_work([c for c in walk if c.id not in fit], now, Reason.SPILL)

    def _key(self, ask: Ask) -> tuple[int, int]:
        """The deepest rung within `key_bytes`; a prompt shorter than any rung is hashed whole."""
        prefix = ask.prefix
        if not prefix.hashes:
            return prefix.whole, 0
        at = max((at for at, depth in enumerate(prefix.depths) if depth <= self.options.key_bytes), default=0)
        return prefix.hashes[at], prefix.depths[at]


def _is_idle(candidate: Candidate) -> bool:
    """It has nothing in flight, from any process of this machine."""
    return not candidate.load.in_flight + candidate.load.elsewhere


def build(options: Options, tools: PolicyTools) -> PrefixBounded:
    return PrefixBounded(options, tools.ring)
