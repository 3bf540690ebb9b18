"""Stickiness by session: the session's id decides the place on the ring, its prompt does not.

The id comes in `X-Session-Id` or in a cookie; a request without one goes by load. A session moves only when its worker
cannot be used: the order is the ring's walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from router.contracts import Ask, Candidate, PolicyTools, Ranked, Ring
from router.core.balance import by_work
from router.core.candidates import by_name
from router.core.fingerprint import seed_of
from router.types import Reason


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Session:
    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        if ask.session is None:
            yield from by_work(candidates, now)
            return
        by_id = by_name(candidates)
        for worker in self.ring.walk(seed_of(ask.session)):
            c = by_id.get(worker)
            if c is not None:
                yield Ranked(worker, Reason.SESSION, 0.0, c.wait(now))


def build(options: Options, tools: PolicyTools) -> Session:
    return Session(tools.ring)
