"""The default: the ring proposes, a cost decides.

    cached(w)  = the deepest rung of this prompt that w holds
    new(w)     = tokens to compute on w, at least 5% of the prompt
    cost(w)    = wait(w) + 4 * new(w) beyond the hot prefix + 1 * new(w) within it
                 + (tokens nobody holds) * recent traffic of w, relative to the mean and smoothed
    choose the least cost; a prompt nobody knows ("cold"): the least wait(w) + prompt * traffic(w) / mean traffic

Why 4 and not 1: with the greedy least time to first token prefixes get copied everywhere and the caches thrash; a copy
of a *hot* prefix will be used again wherever it is, so it costs what it takes to compute. Why the traffic term: a
worker keeps what it computes, so tokens nobody holds yet are better placed where less comes together; it is smoothed
by sixteen prompts of this length, so that it is silent while little has been sent. Waits are measured in prefill
tokens, since prompts differ a hundredfold in length.

Costs within 1% of the prompt are ties, and ties fall in ring order: among workers that hold something, in the ring
order of the first rung, so that equal holders are always asked in the same order and a prefix returns home after a
spill; among the others, in that of the key.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain

from pydantic import BaseModel, ConfigDict, Field

from router.contracts import Ask, Candidate, PolicyTools, Ranked, Ring
from router.core.balance import by_work
from router.prompt import BYTES_A_TOKEN
from router.types import Reason

LEAST_SHARE = 0.05
LEAST_TRAFFIC = 1.0  # tokens; what has faded below is none, and too small to divide by
EQUAL_SHARE = 0.01  # costs closer than this share of the prompt are equal: estimates are no better than that


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
        if not ask.prefix.tokens or not candidates:
            return by_work(candidates, now)
        held = ask.held
        traffic, deepest = 0.0, 0
        for c in candidates:
            traffic += c.load.traffic
            depth = held.get(c.id, 0)
            if depth > deepest:
                deepest = depth
        mean = traffic / len(candidates)
        if mean < LEAST_TRAFFIC:
            mean = LEAST_TRAFFIC
        costs = self._warm(ask, candidates, now, mean, deepest) if deepest else self._cold(ask, candidates, now, mean)
        least = min(costs)
        first = costs.index(least)
        bar = least + EQUAL_SHARE * ask.prefix.tokens
        if len(costs) > 1 and sorted(costs)[1] <= bar:
            first = self._settle(ask, candidates, costs, bar)
        ranked = self._ranked(ask, candidates[first].id, costs[first], cold=not deepest)
        # Nearly every caller takes one: the rest is a generator not begun, since leaving a begun one raises in it.
        return chain((ranked,), self._rest(ask, candidates, costs, first, cold=not deepest))

    def _rest(
        self, ask: Ask, candidates: Sequence[Candidate], costs: Sequence[float], first: int, *, cold: bool
    ) -> Iterator[Ranked]:
        rank = {worker: at for at, worker in enumerate(self.ring.walk(ask.key.value))}
        for at in sorted(range(len(costs)), key=lambda at: (costs[at], rank[candidates[at].id])):
            if at != first:
                yield self._ranked(ask, candidates[at].id, costs[at], cold=cold)

    def _cold(self, ask: Ask, candidates: Sequence[Candidate], now: float, mean: float) -> list[float]:
        """Costs of a prompt that no candidate holds."""
        share = ask.prefix.tokens / mean
        return [(c.wait(now) + share * c.load.traffic) / c.weight for c in candidates]

    def _warm(self, ask: Ask, candidates: Sequence[Candidate], now: float, mean: float, deepest: int) -> list[float]:
        """Costs of a prompt of which some candidate holds `deepest` bytes."""
        tokens, held, factor = ask.prefix.tokens, ask.held, self.options.factor
        hot = ask.key.hot_depth / BYTES_A_TOKEN
        least = LEAST_SHARE * tokens
        base = self.options.smoothing * tokens
        spread = _unheld(ask, deepest) / (mean + base)
        costs = []
        for c in candidates:
            load = c.load
            cached = held.get(c.id, 0) / BYTES_A_TOKEN
            new = tokens - cached
            if new < least:
                new = least
            cost = c.wait(now) + factor * new + spread * (load.traffic + base)
            if cached < hot:
                cost -= (factor - self.options.hot_factor) * min(new, hot - cached)
            costs.append(cost / c.weight)
        return costs

    def _settle(self, ask: Ask, candidates: Sequence[Candidate], costs: Sequence[float], bar: float) -> int:
        """Which of equal costs goes first."""
        ties = {c.id: at for at, c in enumerate(candidates) if costs[at] <= bar}
        holding = [worker for worker in ties if worker in ask.held]
        if len(holding) == 1:
            return ties[holding[0]]
        key = ask.prefix.hashes[0] if holding else ask.key.value
        return ties[self.ring.nearest(key, holding or ties) or next(iter(ties))]

    def _ranked(self, ask: Ask, worker: str, cost: float, *, cold: bool) -> Ranked:
        if cold:
            return Ranked(worker, Reason.COLD, 0.0, cost)
        depth = ask.held.get(worker, 0)
        elsewhere = Reason.WARM if depth else Reason.SPILL
        reason = Reason.HOME if worker == self.ring.home(ask.key.value) else elsewhere
        return Ranked(worker, reason, depth / BYTES_A_TOKEN, cost)


def _unheld(ask: Ask, deepest: int) -> float:
    """Tokens beyond the first rung that nobody holds. A tail short of a rung is not counted: it may be held or not."""
    depths = ask.prefix.depths
    following = bisect_right(depths, deepest)
    return ask.prefix.tokens - depths[following] / BYTES_A_TOKEN if following < len(depths) else 0.0


def build(options: Options, tools: PolicyTools) -> PrefixCost:
    return PrefixCost(options, tools.ring)
