"""No affinity: the worker with the fewest prefill tokens waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from router.contracts import Ask, Candidate, PolicyTools, Ranked
from router.core.balance import by_work


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LeastWork:
    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        return by_work(candidates, now)


def build(options: Options, tools: PolicyTools) -> LeastWork:
    return LeastWork()
