"""No affinity and no load: dice, in proportion to the workers' weights. What other policies are measured against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from pydantic import BaseModel, ConfigDict

from router.contracts import Ask, Candidate, PolicyTools, Ranked
from router.types import Reason


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RandomOrder:
    """A weighted draw without replacement (Efraimidis and Spirakis, 2006): the largest u ** (1 / weight) first."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        draws = sorted(((self.dice.random() ** (1.0 / c.weight), c.id) for c in candidates), reverse=True)
        for draw, worker in draws:
            yield Ranked(worker, Reason.LOAD, 0.0, 1.0 - draw)


def build(options: Options, tools: PolicyTools) -> RandomOrder:
    return RandomOrder(tools.random)
