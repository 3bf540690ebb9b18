"""No affinity: of two workers drawn at random, the one with fewer requests in flight (Mitzenmacher, 2001)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from pydantic import BaseModel, ConfigDict

from router.contracts import Ask, Candidate, PolicyTools, Ranked
from router.core.balance import by_requests


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PowerOfTwo:
    def __init__(self, dice: Random) -> None:
        self.dice = dice

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        drawn = self.dice.sample(candidates, min(2, len(candidates)))
        yield from by_requests(drawn)
        yield from by_requests([c for c in candidates if c not in drawn])


def build(options: Options, tools: PolicyTools) -> PowerOfTwo:
    return PowerOfTwo(tools.random)
