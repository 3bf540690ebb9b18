"""A policy for stories that fails on one kind of prompt, and says the whole of it in its error."""

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from router.contracts import Ask, Candidate, PolicyTools, Ranked
from router.types import Reason


class Options(BaseModel):
    """None."""


class Blurting:
    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        if b"fail" in ask.text:
            raise ValueError(ask.text.decode("utf-8", "replace"))
        for seat in candidates:
            yield Ranked(seat.id, Reason.LOAD, 0.0, 0.0)


def build(options: Options, tools: PolicyTools) -> Blurting:
    return Blurting()
