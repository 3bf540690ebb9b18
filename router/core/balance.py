"""Orders by load alone, for policies without affinity and for prompts with nothing to hash.

Ties fall to the worker that got less recently, then by name: evenly, and the same in every process. Of many workers
only as many are looked at as are asked for (`standing.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from router.contracts import Candidate, Ranked
from router.core.candidates import Candidates
from router.core.standing import SAFE, SMALL, Standing
from router.types import Reason

FEW: Final = 8  # workers that are looked at before it is asked how far each of all is

Place = tuple[float, float, float, str]


def by_work(candidates: Sequence[Candidate], now: float, reason: str = Reason.LOAD) -> Iterator[Ranked]:
    """Fewest waiting prefill tokens first, for its speed; then fewest requests in flight."""
    if isinstance(candidates, Candidates) and candidates.standing.count > SMALL:
        first = _least_work(candidates.standing, now)
    elif candidates:
        first = min(_places(candidates, now))
    else:
        return iter(())
    return chain((Ranked(first[3], reason, 0.0, first[0]),), _more_work(candidates, now, reason, first[3]))


def by_requests(candidates: Sequence[Candidate], reason: str = Reason.LOAD) -> Iterator[Ranked]:
    """Fewest requests in flight first, for its weight."""
    if isinstance(candidates, Candidates) and candidates.standing.count > SMALL:
        order = candidates.standing.by_requests()
        least, _, _, first, _ = order.rows()[0]
        yield Ranked(first, reason, 0.0, least)
        for row in [*order.rows()]:  # nearly every caller takes one; the rest is as it is when it is asked for
            if row[3] != first:
                yield Ranked(row[3], reason, 0.0, row[0])
        return
    for in_flight, _, worker in sorted([(requests_for_weight(c), c.load.traffic / c.weight, c.id) for c in candidates]):
        yield Ranked(worker, reason, 0.0, in_flight)


def requests_for_weight(candidate: Candidate) -> float:
    """In flight by all processes of this machine, for its weight."""
    load = candidate.load
    return (load.in_flight + load.elsewhere) / candidate.weight


def _places(candidates: Sequence[Candidate], now: float) -> list[Place]:
    return [(c.wait(now) / c.speed, requests_for_weight(c), c.load.traffic / c.weight, c.id) for c in candidates]


def _place(c: Candidate, now: float) -> Place:
    return _places((c,), now)[0]


def _least_work(standing: Standing, now: float) -> Place:
    """The first of all. Rows are never above their places, so none after the first row above the least place counts."""
    work = standing.by_work().rows()
    least = _place(work[0][4], now)
    for row in work[1:FEW]:
        if row[:4] >= least:
            return least
        least = min(least, _place(row[4], now))
    return _least_of_busy(standing, least, now)


def _least_of_busy(standing: Standing, least: Place, now: float) -> Place:
    """All are busy: also by what is left there by their paces, which is never above their waits either."""
    left = standing.by_left(now)
    fallen = left.fallen(now)
    run, alike = 0.0, False  # the row of the least, where that is what waits there: then those of its like come later
    for row, by_pace in zip(standing.by_work().rows(), left.rows(), strict=True):
        if row[:4] >= least or (by_pace[0] - fallen) * SAFE > least[0] or (alike and by_pace[0] == run):
            break
        least = min(least, _place(row[4], now))
        place = _place(by_pace[4], now)
        if place <= least:
            least, run = place, by_pace[0]
            alike = run - fallen >= place[0] * SAFE
    return least


def _more_work(candidates: Sequence[Candidate], now: float, reason: str, first: str) -> Iterator[Ranked]:
    for wait, _, _, worker in sorted(_places(candidates, now)):
        if worker != first:
            yield Ranked(worker, reason, 0.0, wait)
