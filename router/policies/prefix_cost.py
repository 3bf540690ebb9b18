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
        held = self._held(ask, candidates)
        costs = self._costs(ask, candidates, held, now) if held else self._cold_costs(ask, candidates, now)
        home = self.ring.nearest(ask.key.value, costs)
        first = self._first(ask, costs, held)
        yield self._ranked(first, ask, costs, held, home)
        rank = {worker: at for at, worker in enumerate(self.ring.walk(ask.key.value))}
        for worker in sorted(costs, key=lambda worker: (costs[worker], rank[worker])):
            if worker != first:
                yield self._ranked(worker, ask, costs, held, home)

    def _held(self, ask: Ask, candidates: Sequence[Candidate]) -> dict[str, float]:
        """Tokens expected in each candidate's cache; who holds none is absent."""
        known = ask.held
        if not known:
            return {}
        return {c.id: known[c.id] / BYTES_A_TOKEN for c in candidates if c.id in known}

    def _cold_costs(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> dict[str, float]:
        mean = sum(c.traffic for c in candidates) / len(candidates) or 1.0
        share = ask.prefix.tokens / mean
        return {c.id: (c.wait(now) + share * c.traffic) / c.weight for c in candidates}

    def _costs(
        self, ask: Ask, candidates: Sequence[Candidate], held: Mapping[str, float], now: float
    ) -> dict[str, float]:
        tokens = ask.prefix.tokens
        hot = ask.key.hot_depth / BYTES_A_TOKEN
        factor, discount = self.options.factor, self.options.factor - self.options.hot_factor
        least = LEAST_SHARE * tokens
        unknown, base, traffic = self._traffic(tokens, candidates, held)
        costs = {}
        for c in candidates:
            cached = held.get(c.id, 0.0)
            new = max(tokens - cached, least)
            cost = c.wait(now) + factor * new + unknown * (c.traffic + base) / traffic
            if cached < hot:
                cost -= discount * min(new, hot - cached)
            costs[c.id] = cost / c.weight
        return costs

    def _traffic(
        self, tokens: float, candidates: Sequence[Candidate], held: Mapping[str, float]
    ) -> tuple[float, float, float]:
        """(tokens nobody holds, the smoothing, the smoothed mean traffic)."""
        unknown = max(0.0, tokens - max(held.values()))
        base = self.options.smoothing * tokens
        mean = sum(c.traffic for c in candidates) / len(candidates)
        return unknown, base, (mean + base) or 1.0

    def _first(self, ask: Ask, costs: Mapping[str, float], held: Mapping[str, float]) -> str:
        bar = min(costs.values()) + EQUAL
        ties = [worker for worker, cost in costs.items() if cost <= bar]
        if len(ties) == 1:
            return ties[0]
        holding = [worker for worker in ties if worker in held]
        if len(holding) == 1:
            return holding[0]
        if holding:
            return self.ring.nearest(ask.prefix.hashes[0], holding) or holding[0]
        return self.ring.nearest(ask.key.value, ties) or ties[0]

    def _ranked(
        self, worker: str, ask: Ask, costs: Mapping[str, float], held: Mapping[str, float], home: str | None
    ) -> Ranked:
        if not held:
            reason = Reason.COLD
        elif worker == home:
            reason = Reason.HOME
        else:
            reason = Reason.WARM if worker in held else Reason.SPILL
        return Ranked(worker, reason, held.get(worker, 0.0), costs[worker])


def build(options: Options, tools: PolicyTools) -> PrefixCost:
    return PrefixCost(options, tools.ring)
