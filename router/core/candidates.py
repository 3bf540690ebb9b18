"""The workers that may be used for a model: a plain list of their seats, and beside it what is known of them together.

A policy may treat it as any sequence. Those of this house look at `standing`, so as not to look at every worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from router.contracts import Candidate
from router.core.seat import Seat
from router.core.standing import Standing


class Candidates(list[Seat]):
    """In the order of their names. Never changed once it is made. `sums`: of the weights of each and all before it."""

    __slots__ = ("standing", "sums")

    def __init__(self, seats: Iterable[Seat] = ()) -> None:
        super().__init__(seats)
        self.standing = Standing(self)
        self.sums = [*accumulate(seat.weight for seat in self)]


def by_name(candidates: Sequence[Candidate]) -> Mapping[str, Candidate]:
    return candidates.standing.by_id if isinstance(candidates, Candidates) else {c.id: c for c in candidates}


def sums_of_weights(candidates: Sequence[Candidate]) -> Sequence[float]:
    """Of each one and all before it."""
    return candidates.sums if isinstance(candidates, Candidates) else [*accumulate(c.weight for c in candidates)]
