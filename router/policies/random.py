"""No affinity and no load: dice, in proportion to the workers' weights. What other policies are measured against."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from random import Random

from pydantic import BaseModel, ConfigDict

from router.contracts import Ask, Candidate, PolicyTools, Ranked
from router.core.candidates import sums_of_weights
from router.types import Reason


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RandomOrder:
    """A weighted draw without replacement: the first by where a number falls among the sums of the weights, which takes
    one draw; the others, where they are asked for, by the largest u ** (1 / weight) (Efraimidis and Spirakis, 2006)."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        if not candidates:
            return
        draw, sums = self.dice.random(), sums_of_weights(candidates)
        first = candidates[min(bisect_right(sums, draw * sums[-1]), len(candidates) - 1)].id
        yield Ranked(first, Reason.LOAD, 0.0, 0.0)
        draws = sorted(
            ((self.dice.random() ** (1.0 / c.weight), c.id) for c in candidates if c.id != first), reverse=True
        )
        for draw, worker in draws:
            yield Ranked(worker, Reason.LOAD, 0.0, 1.0 - draw)


def build(options: Options, tools: PolicyTools) -> RandomOrder:
    return RandomOrder(tools.random)
