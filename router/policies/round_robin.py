"""No affinity and no load: each worker in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from router.contracts import Ask, Candidate, PolicyTools, Ranked
from router.core.candidates import Candidates
from router.types import Reason


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RoundRobin:
    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        in_turn = candidates if isinstance(candidates, Candidates) else sorted(candidates, key=lambda c: c.id)
        for at in range(len(in_turn)):
            yield Ranked(in_turn[(ask.turn + at) % len(in_turn)].id, Reason.LOAD, 0.0, float(at))


def build(options: Options, tools: PolicyTools) -> RoundRobin:
    return RoundRobin()
