"""Other systems' rules, to compare with in a replay; the gateway does not offer them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from pydantic import BaseModel, ConfigDict, Field

from router.contracts import Ask, Candidate, Policy, PolicyTools, Ranked, Ring
from router.types import Reason


class BoundedOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    bound: float = Field(1.25, ge=1, description="times the mean requests in flight that a worker may have")
    key_bytes: int = Field(4096, ge=64, description="bytes of the prompt's beginning that decide its place")


class BoundedRequests:
    """Consistent hashing with bounded loads, the load in requests and a key of fixed depth, as in KubeAI."""

    def __init__(self, options: BoundedOptions, ring: Ring) -> None:
        self.options = options
        self.ring = ring

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        if not candidates:
            return
        seats = {c.id: c for c in candidates}
        walk = [seats[worker] for worker in self.ring.walk(self._key(ask)) if worker in seats]
        in_flight = sum(c.load.in_flight for c in walk)
        most = ceil(self.options.bound * (in_flight + 1) / len(walk))
        fitting = [c for c in walk if c.load.in_flight < most]
        for c in [*fitting, *(c for c in walk if c not in fitting)]:
            reason = Reason.HOME if c is walk[0] else Reason.SPILL
            yield Ranked(c.id, reason, 0.0, float(c.load.in_flight))

    def _key(self, ask: Ask) -> int:
        """The deepest rung within `key_bytes`."""
        prefix = ask.prefix
        if not prefix.hashes:
            return prefix.whole
        at = max((at for at, depth in enumerate(prefix.depths) if depth <= self.options.key_bytes), default=0)
        return prefix.hashes[at]


def bounded_requests(options: BoundedOptions, tools: PolicyTools) -> Policy:
    return BoundedRequests(options, tools.ring)
