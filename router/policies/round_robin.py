"""No affinity and no load: each worker in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from router.contracts import Ask, Candidate, PolicyTools, Ranked
from router.types import Reason


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RoundRobin:
    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        names = sorted(c.id for c in candidates)
        for at in range(len(names)):
            yield Ranked(names[(ask.turn + at) % len(names)], Reason.LOAD, 0.0, float(at))


def build(options: Options, tools: PolicyTools) -> RoundRobin:
    return RoundRobin()
