"""No affinity: the worker with the fewest requests in flight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from router.contracts import Ask, Candidate, PolicyTools, Ranked
from router.core.balance import by_requests


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LeastOutstanding:
    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        return by_requests(candidates)


def build(options: Options, tools: PolicyTools) -> LeastOutstanding:
    return LeastOutstanding()
