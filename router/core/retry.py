"""May this failure be tried elsewhere? A law on one page.

An engine computes for seconds what a second engine would compute again, so a request is repeated only when it
certainly did not run: the connection was refused or never came, a reused connection failed before any byte, or the
worker said 503 or 429. Never after the first byte of an answer, never on the gateway's own first-byte or idle limit,
never on a worker that was tried, and at most `max_tries` times (refusals to connect are not counted: each worker is
asked at most once).
"""

from __future__ import annotations

from typing import Final

from router.errors import AttemptError

BACK_PRESSURE: Final = frozenset((429, 503))


def may_retry(failure: AttemptError, *, counted: int, max_tries: int, answered: bool) -> bool:
    """After a failed attempt; `counted` includes it where it counts, `answered`: a byte of an answer was seen."""
    return failure.certainly_not_run and not answered and counted < max_tries


def may_retry_status(status: int, *, counted: int, max_tries: int) -> bool:
    """After a worker's own answer. Anything but back-pressure is the client's to see, a 500 too."""
    return status in BACK_PRESSURE and counted < max_tries


def is_fault(status: int) -> bool:
    """Whether an answer speaks against its worker: 4xx speak about the request, 503 and 429 about the load."""
    return status >= 500 and status not in BACK_PRESSURE
