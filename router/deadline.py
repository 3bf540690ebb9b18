"""How long a request may take in all: the client's own `x-request-timeout`, or `timeouts.total_seconds`, the smaller.

The journey itself is what the sweep watches, and only one that has a deadline. When the time is up, whatever phase it
is in ends there: everything is given back, the worker's request is cancelled, and its health hears nothing of it.
"""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING, Final

from router.elsewhere import cut
from router.ending import phase
from router.errors import InvalidRequest, RequestTimeout, WorkerTimeout
from router.events import DeadlinePassed

if TYPE_CHECKING:
    from router.journey import Journey

DECIMAL: Final = re.compile(rb"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}")
LEAST_LEFT: Final = 0.001  # seconds; a worker is never told 0, which some take for no limit
EXPECTED: Final = (
    "x-request-timeout: expected the seconds this request may take, a decimal number above 0, such as 2.5."
)


def begin(journey: Journey) -> None:
    """Its time runs from the request's head. Raises InvalidRequest for a header that says no such time."""
    given = journey.intake.timeout
    limit = journey.house.total_seconds
    seconds = inf if limit is None else limit
    if given is not None:
        own = float(given) if DECIMAL.fullmatch(given.strip()) else 0.0
        if own <= 0.0:
            raise InvalidRequest(EXPECTED, param="x-request-timeout")
        seconds = min(own, seconds)
    journey.deadline = journey.started + seconds
    journey.house.sweep.watch(journey)


def left(journey: Journey, now: float) -> float:
    """Seconds; infinity where there is no deadline."""
    return max(journey.deadline - now, LEAST_LEFT)


def line(journey: Journey, now: float) -> bytes:
    """What the worker is told."""
    return b"x-request-timeout: %.3f\r\n" % left(journey, now)


def passed(journey: Journey) -> None:
    """The time is up."""
    if journey.ended:
        return
    at = phase(journey)
    journey.house.emit(DeadlinePassed(at))
    if journey.status:
        cut(journey)
    elif at == "receiving":
        journey.refuse(RequestTimeout("The request did not come within the time that it may take in all."))
    else:
        journey.refuse(WorkerTimeout("No answer began within the time that this request may take in all."))
