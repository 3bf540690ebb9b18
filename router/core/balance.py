"""Orders by load alone, for policies without affinity and for prompts with nothing to hash.

Ties fall to the worker that got less recently, then by name: evenly, and the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from router.contracts import Candidate, Ranked
from router.types import Reason


def by_work(candidates: Sequence[Candidate], now: float, reason: str = Reason.LOAD) -> Iterator[Ranked]:
    """Fewest waiting prefill tokens first, for its speed; then fewest requests in flight."""
    order = sorted((c.wait(now) / c.speed, requests_for_weight(c), c.load.traffic / c.weight, c.id) for c in candidates)
    return iter([Ranked(worker, reason, 0.0, wait) for wait, _, _, worker in order])


def by_requests(candidates: Sequence[Candidate], reason: str = Reason.LOAD) -> Iterator[Ranked]:
    """Fewest requests in flight first, for its weight."""
    for in_flight, _, worker in sorted((requests_for_weight(c), c.load.traffic / c.weight, c.id) for c in candidates):
        yield Ranked(worker, reason, 0.0, in_flight)


def requests_for_weight(candidate: Candidate) -> float:
    """In flight by all processes of this machine, for its weight."""
    load = candidate.load
    return (load.in_flight + load.elsewhere) / candidate.weight
