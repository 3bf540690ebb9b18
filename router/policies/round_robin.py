"""No affinity and no load: each worker in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from router.contracts import Ask, Candidate, PolicyTools, Ranked
from router.types import Reason


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RoundRobin:
    """Remembers whose turn was last by name, so that a worker joining or leaving skips nobody."""

    def __init__(self) -> None:
        self._last = ""

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        names = sorted(c.id for c in candidates)
        start = next((at for at, name in enumerate(names) if name > self._last), 0)
        for at in range(len(names)):
            worker = names[(start + at) % len(names)]
            self._last = worker
            yield Ranked(worker, Reason.LOAD, 0.0, float(at))


def build(options: Options, tools: PolicyTools) -> RoundRobin:
    return RoundRobin()
