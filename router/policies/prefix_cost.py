"""The default: the ring proposes, a cost decides.

    cached(w)  = the deepest rung of this prompt that w holds
    new(w)     = tokens to compute on w, at least 5% of the prompt
    cost(w)    = wait(w) + 4 * new(w) beyond the hot prefix + 0.5 * new(w) within it
                 + (tokens nobody holds) * recent traffic of w, relative to the mean and smoothed
    choose the least cost; a prompt nobody knows ("cold"): the least wait(w) + prompt * traffic(w) / mean traffic

Why 4 and not 1: with the greedy least time to first token prefixes get copied everywhere and the caches thrash; a copy
of a *hot* prefix will be used again wherever it is, so it costs less than it takes to compute. Why the traffic term: a
worker keeps what it computes, so tokens nobody holds yet are better placed where less comes together; it is smoothed
by sixteen prompts of this length, so that it is silent while little has been sent. Waits are measured in prefill
tokens, since prompts differ a hundredfold in length.

Where other gateways send to the same workers and do not share what they know, the home is trusted with a learnt share
of what it is not known to hold, whoever else is known to hold it: the ring makes all of them meet there, and a prefix
that has copies elsewhere returns. In the cost that share counts half as much again, since what is computed at home is
found by the others, who look there too.

Costs are divided by each worker's speed, so that they compare as times do. When the least costly worker would break
the promise on the time to first token and another would keep it, the least costly of those that keep it is taken.

Costs within 1% of the prompt are ties, and ties fall in ring order: among workers that hold something, in the ring
order of the first rung, so that equal holders are always asked in the same order and a prefix returns home after a
spill; among the others, in that of the key. Of a hot prefix only those with the fewest requests in flight are equal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain

from pydantic import BaseModel, ConfigDict, Field

from router.contracts import Ask, Candidate, PolicyTools, Promise, Ranked, Ring
from router.core.balance import by_work, requests_for_weight
from router.core.load import LEAST_WORK
from router.types import Reason

LEAST_TRAFFIC = 1.0  # tokens; what has faded below is none, and too small to divide by
HOMEWARD = 1.5  # times what the home is trusted with: a prompt sent there also leaves what the others will look for
EQUAL_SHARE = 0.01  # costs closer than this share of the prompt are equal: estimates are no better than that


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    factor: float = Field(4.0, ge=0, description="what computing a token again costs, against waiting for one")
    hot_factor: float = Field(0.5, ge=0, description="the same within a hot prefix")
    keep_slo: bool = Field(True, description="leave a warm worker whose wait would break routing.slo")
    smoothing: float = Field(16.0, ge=0, description="prompts of this length that smooth the recent traffic")


class PrefixCost:
    def __init__(self, options: Options, ring: Ring, slo: Promise | None = None) -> None:
        self.options = options
        self.ring = ring
        self.slo = slo if options.keep_slo else None

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
        if deepest or ask.trust:
            costs = self._warm(ask, candidates, now, mean, deepest)
        else:
            costs = self._cold(ask, candidates, now, mean)
        if self.slo is not None:
            self._keep_promise(self.slo.allowed(ask), ask, candidates, costs, now)
        least = min(costs)
        first = costs.index(least)
        bar = least + EQUAL_SHARE * ask.prefix.tokens
        if len(costs) > 1 and sorted(costs)[1] <= bar:
            first = self._settle(ask, candidates, costs, bar)
        cold = not (deepest or ask.trust)
        ranked = self._ranked(ask, candidates[first].id, costs[first], cold=cold)
        # Nearly every caller takes one: the rest is a generator not begun, since leaving a begun one raises in it.
        return chain((ranked,), self._rest(ask, candidates, costs, first, cold=cold))

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
        return [(c.wait(now) + share * c.load.traffic) / c.speed for c in candidates]

    def _warm(self, ask: Ask, candidates: Sequence[Candidate], now: float, mean: float, deepest: int) -> list[float]:
        """Costs of a prompt of which some candidate holds `deepest` bytes, or the home may hold some."""
        prefix, held, factor = ask.prefix, ask.held, self.options.factor
        tokens, bytes_a_token = prefix.tokens, prefix.bytes_a_token
        hot = ask.key.hot_depth / bytes_a_token
        least = LEAST_WORK * tokens
        base = self.options.smoothing * tokens
        spread = _unheld(ask, deepest) / (mean + base) if not ask.trust else 0.0  # own traffic is not all there is
        home = self.ring.home(ask.key.value) if ask.trust else None
        trusted = min(HOMEWARD * ask.trust, 1.0)
        costs = []
        for c in candidates:
            load = c.load
            cached = held.get(c.id, 0) / bytes_a_token
            if c.id == home:
                cached += trusted * (tokens - cached)
            new = tokens - cached
            if new < least:
                new = least
            cost = c.wait(now) + factor * new + spread * (load.traffic + base)
            if cached < hot:
                cost -= (factor - self.options.hot_factor) * min(new, hot - cached)
            costs.append(cost / c.speed)
        return costs

    def _keep_promise(
        self, allowed: float, ask: Ask, candidates: Sequence[Candidate], costs: list[float], now: float
    ) -> None:
        """Where the least costly worker would break the promise and others keep it, those that break it are out."""
        paces = [c.load.pace for c in candidates if c.load.pace is not None]
        if not paces:
            return
        usual = max(paces)  # of a worker whose own is not known yet
        bar = min(costs) + EQUAL_SHARE * ask.prefix.tokens
        if all(cost > bar or _seconds(ask, candidates[at], usual, now) <= allowed for at, cost in enumerate(costs)):
            return
        breaking = [at for at, c in enumerate(candidates) if _seconds(ask, c, usual, now) > allowed]
        if len(breaking) < len(costs):
            more = max(costs) + ask.prefix.tokens
            for at in breaking:
                costs[at] += more

    def _settle(self, ask: Ask, candidates: Sequence[Candidate], costs: Sequence[float], bar: float) -> int:
        """Which of equal costs goes first."""
        ties = {c.id: at for at, c in enumerate(candidates) if costs[at] <= bar}
        if ask.key.hot_depth:
            loads = {worker: requests_for_weight(candidates[at]) for worker, at in ties.items()}
            least = min(loads.values())
            ties = {worker: at for worker, at in ties.items() if loads[worker] == least}
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
        expected = depth / ask.prefix.bytes_a_token
        if worker != self.ring.home(ask.key.value):
            return Ranked(worker, elsewhere, expected, cost)
        expected += ask.trust * (ask.prefix.tokens - expected)
        return Ranked(worker, Reason.HOME, expected, cost)


def _seconds(ask: Ask, candidate: Candidate, usual: float, now: float) -> float:
    """The time to first token to be expected there."""
    cached = ask.held.get(candidate.id, 0) / ask.prefix.bytes_a_token
    return (candidate.wait(now) + ask.prefix.tokens - cached) / (candidate.load.pace or usual)


def _unheld(ask: Ask, deepest: int) -> float:
    """Tokens beyond the first rung that nobody holds. A tail short of a rung is not counted: it may be held or not."""
    depths = ask.prefix.depths
    following = bisect_right(depths, deepest)
    return ask.prefix.tokens - depths[following] / ask.prefix.bytes_a_token if following < len(depths) else 0.0


def build(options: Options, tools: PolicyTools) -> PrefixCost:
    return PrefixCost(options, tools.ring, tools.slo)
