"""Workers' speeds against each other, so that a mixed fleet needs no configuration.

A wait of a thousand tokens is twice as long on a worker half as fast. Costs are therefore divided by a worker's speed:
its configured weight where weights differ, else its learnt pace against the fleet's median (of two, the faster).
Differences within a quarter are noise of measuring, and count as none.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_high
from typing import Final, Protocol

from router.core.load import Load

NOISE: Final = 0.25
LEAST_SPEED: Final = 0.1
MOST_SPEED: Final = 10.0


class Paced(Protocol):
    weight: float
    speed: float

    @property
    def load(self) -> Load: ...


def set_speeds(seats: Sequence[Paced]) -> bool:
    """Give every worker its speed. With all paces alike, or unknown, everybody has the same. True when one
    moved."""
    before = [seat.speed for seat in seats]
    told = len({seat.weight for seat in seats}) > 1
    paces = [seat.load.pace for seat in seats if seat.load.pace is not None]
    typical = median_high(paces) if paces else 0.0
    for seat in seats:
        pace = seat.load.pace
        if told or pace is None or typical <= 0.0:
            seat.speed = seat.weight
            continue
        relative = pace / typical
        alike = 1 - NOISE <= relative <= 1 / (1 - NOISE)
        seat.speed = seat.weight * (1.0 if alike else min(max(relative, LEAST_SPEED), MOST_SPEED))
    return [seat.speed for seat in seats] != before
