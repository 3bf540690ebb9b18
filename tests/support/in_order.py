"""A policy for stories: the workers in the order of their ids, so that a story knows who is asked first."""

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from router.contracts import Ask, Candidate, PolicyTools, Ranked
from router.types import Reason


class Options(BaseModel):
    """None."""


class InOrder:
    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        for seat in sorted(candidates, key=lambda seat: seat.id):
            yield Ranked(seat.id, Reason.LOAD, 0.0, 0.0)


def build(options: Options, tools: PolicyTools) -> InOrder:
    return InOrder()
