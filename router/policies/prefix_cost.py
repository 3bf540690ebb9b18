"""The default: the ring proposes, a cost decides.

    cached(w)  = the deepest rung of this prompt that w holds
    new(w)     = tokens to compute on w, at least 5% of the prompt
    cost(w)    = wait(w) + 4 * new(w) beyond the hot prefix + 1 * new(w) within it
                 + (tokens nobody holds) * recent traffic of w, relative to the mean and smoothed
    choose the least cost; a prompt nobody knows ("cold"): the least wait(w) + prompt * traffic(w) / mean traffic

Why 4 and not 1: with the greedy least time to first token prefixes get copied everywhere and the caches thrash; a copy
of a *hot* prefix will be used again wherever it is, so it costs what it takes to compute. Why the traffic term: a
worker keeps what it computes, so tokens nobody holds yet are better placed where less comes together; it is smoothed
by sixteen prompts of this length, so that it is silent while little has been sent. Waits are measured in prefill tokens, since
prompts differ a hundredfold in length.

Ties fall in ring order: among workers that hold something, in the ring order of the first rung, so that equal holders
are always asked in the same order and a prefix returns home after a spill; among the others, in that of the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from router.contracts import Ask, Candidate, PolicyTools, Ranked, Ring
from router.core.balance import by_work
from router.prompt import BYTES_A_TOKEN
from router.types import Reason

LEAST_SHARE = 0.05
EQUAL = 1e-6  # costs closer than this are equal


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    factor: float = Field(4.0, ge=0, description="what computing a token again costs, against waiting for one")
    hot_factor: float = Field(1.0, ge=0, description="the same within a hot prefix")
    smoothing: float = Field(16.0, ge=0, description="prompts of this length that smooth the recent traffic")


class PrefixCost:
    def __init__(self, options: Options, ring: Ring) -> None:
        self.options = options
        self.ring = ring

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        if not ask.prefix.tokens:
            yield from by_work(candidates, now)
            return
        held = ask.held
        costs = self._warm(ask, candidates, now) if held else None
        cold = costs is None
        if costs is None:
            costs = self._cold(ask, candidates, now)
        home = self.ring.home(ask.key.value)
        if home not in costs:
            home = self.ring.nearest(ask.key.value, costs)
        first = self._first(ask, costs)
        yield _ranked(first, costs[first], held, home, cold=cold)
        rank = {worker: at for at, worker in enumerate(self.ring.walk(ask.key.value))}
        for worker in sorted(costs, key=lambda worker: (costs[worker], rank[worker])):
            if worker != first:
                yield _ranked(worker, costs[worker], held, home, cold=cold)

    def _cold(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> dict[str, float]:
        """Costs of a prompt that no candidate holds."""
        mean = sum([c.load.traffic for c in candidates]) / len(candidates) or 1.0
        share = ask.prefix.tokens / mean
        return {c.id: (c.wait(now) + share * c.load.traffic) / c.weight for c in candidates}

    def _warm(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> dict[str, float] | None:
        """Costs of a prompt that some candidate holds; None when none does."""
        tokens, held, options = ask.prefix.tokens, ask.held, self.options
        traffic, deepest = 0.0, 0
        for c in candidates:
            traffic += c.load.traffic
            depth = held.get(c.id, 0)
            if depth > deepest:
                deepest = depth
        if not deepest:
            return None
        hot = ask.key.hot_depth / BYTES_A_TOKEN
        factor, discount, least = options.factor, options.factor - options.hot_factor, LEAST_SHARE * tokens
        base = options.smoothing * tokens
        spread = max(0.0, tokens - deepest / BYTES_A_TOKEN) / ((traffic / len(candidates) + base) or 1.0)
        costs = {}
        for c in candidates:
            cached = held.get(c.id, 0) / BYTES_A_TOKEN
            new = tokens - cached
            if new < least:
                new = least
            cost = c.wait(now) + factor * new + spread * (c.load.traffic + base)
            if cached < hot:
                cost -= discount * min(new, hot - cached)
            costs[c.id] = cost / c.weight
        return costs

    def _first(self, ask: Ask, costs: Mapping[str, float]) -> str:
        bar = min(costs.values()) + EQUAL
        ties = [worker for worker, cost in costs.items() if cost <= bar]
        if len(ties) == 1:
            return ties[0]
        holding = [worker for worker in ties if worker in ask.held]
        if len(holding) == 1:
            return holding[0]
        if holding:
            return self.ring.nearest(ask.prefix.hashes[0], holding) or holding[0]
        return self.ring.nearest(ask.key.value, ties) or ties[0]


def _ranked(worker: str, cost: float, held: Mapping[str, int], home: str | None, *, cold: bool) -> Ranked:
    if cold:
        return Ranked(worker, Reason.COLD, 0.0, cost)
    depth = held.get(worker, 0)
    reason = Reason.HOME if worker == home else Reason.WARM if depth else Reason.SPILL
    return Ranked(worker, reason, depth / BYTES_A_TOKEN, cost)


def build(options: Options, tools: PolicyTools) -> PrefixCost:
    return PrefixCost(options, tools.ring)
