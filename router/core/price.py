"""What one prompt costs at a worker, in prefill tokens for its speed; the rule is told in `policies/prefix_cost.py`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

from router.asks import Ask
from router.contracts import Candidate
from router.core.load import LEAST_WORK

LEAST_TRAFFIC: Final = 1.0  # tokens; what has faded below is none, and too small to divide by
HOMEWARD: Final = (
    1.5  # times what the home is trusted with: a prompt sent there also leaves what the others will look for
)
EQUAL_SHARE: Final = 0.01  # costs closer than this share of the prompt are equal: estimates are no better than that
ROUNDING: Final = 1e-9  # of a sum's largest terms: more than all rounding of a cost amounts to


class Weights:
    """The options of `prefix_cost` that are numbers."""

    __slots__ = ("factor", "hot_factor", "smoothing")

    def __init__(self, factor: float, hot_factor: float, smoothing: float) -> None:
        self.factor = factor
        self.hot_factor = hot_factor
        self.smoothing = smoothing


class Price:
    """cold: nobody holds any of it, and nobody is trusted to
    home: who is trusted with a part of it; None for nobody
    band: costs that are no further apart are equal
    others, slope: at a worker that holds nothing and is not the home the cost is at least
        (wait + others + slope * traffic) / speed, and no more than rounding above it
    """

    __slots__ = ("_base", "_bytes_a_token", "_cut", "_factor", "_held", "_hot", "_least", "_tokens", "_trusted", "band",
                 "cold", "home", "others", "slope")  # fmt: skip

    def __init__(self, ask: Ask, weights: Weights, home: str | None, deepest: int, mean: float) -> None:
        """deepest: bytes that some candidate holds; mean: of the candidates' traffic"""
        prefix = ask.prefix
        tokens = prefix.tokens
        if mean < LEAST_TRAFFIC:
            mean = LEAST_TRAFFIC
        self.band = EQUAL_SHARE * tokens
        self.home = home
        self.cold = not (deepest or ask.trust)
        if self.cold:
            self.others = 0.0
            self.slope = tokens / mean
            return
        self._tokens = tokens
        self._held: Mapping[str, int] = ask.held
        self._bytes_a_token = prefix.bytes_a_token
        self._hot = ask.key.hot_depth / prefix.bytes_a_token
        self._least = LEAST_WORK * tokens
        self._factor = weights.factor
        self._cut = weights.factor - weights.hot_factor
        self._base = weights.smoothing * tokens
        self._trusted = min(HOMEWARD * ask.trust, 1.0)
        # own traffic is not all there is where others are trusted to send too
        self.slope = _unheld(ask, deepest) / (mean + self._base) if not ask.trust else 0.0
        others = weights.factor * tokens - self._cut * min(tokens, self._hot) + self.slope * self._base
        self.others = others - ROUNDING * (weights.factor + weights.hot_factor) * tokens

    def at(self, c: Candidate, now: float) -> float:
        """The cost there."""
        if self.cold:
            return (c.wait(now) + self.slope * c.load.traffic) / c.speed
        return self.at_each((c,), now)[0]

    def at_each(self, candidates: Sequence[Candidate], now: float) -> list[float]:
        """The cost at each of them."""
        slope = self.slope
        if self.cold:
            return [(c.wait(now) + slope * c.load.traffic) / c.speed for c in candidates]
        held, bytes_a_token, tokens, home = self._held, self._bytes_a_token, self._tokens, self.home
        hot, least, factor, base = self._hot, self._least, self._factor, self._base
        costs = []
        for c in candidates:
            cached = held.get(c.id, 0) / bytes_a_token
            if c.id == home:
                cached += self._trusted * (tokens - cached)
            new = tokens - cached
            if new < least:
                new = least
            cost = c.wait(now) + factor * new + slope * (c.load.traffic + base)
            if cached < hot:
                cost -= self._cut * min(new, hot - cached)
            costs.append(cost / c.speed)
        return costs


def _unheld(ask: Ask, deepest: int) -> float:
    """Tokens beyond the first rung that nobody holds. A tail short of a rung is not counted: it may be held or not."""
    depths = ask.prefix.depths
    following = bisect_right(depths, deepest)
    return ask.prefix.tokens - depths[following] / ask.prefix.bytes_a_token if following < len(depths) else 0.0
