"""Choosing: the policy's order, and the first in it that fits.

Retry is the same order without those tried. A worker that is full is passed over; one that just said 503 or 429 is
passed over while another fits.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec

from router.contracts import Ask, Policy
from router.core.fleet import Seat
from router.types import Reason


class Choice(msgspec.Struct, frozen=True):
    """The worker, why, how many cached tokens are expected there, and who was passed over for its load."""

    seat: Seat
    reason: Reason
    expected: float
    passed: tuple[str, ...]


def choose(policy: Policy, ask: Ask, seats: Sequence[Seat], tried: Container[str], now: float) -> Choice | None:
    """The first that fits, or None when none does."""
    if not seats:
        return None
    by_id = {seat.id: seat for seat in seats}
    passed: list[str] = []
    pressed: Choice | None = None
    for ranked in policy.order(ask, seats, now):
        if ranked.worker in tried:
            continue
        seat = by_id[ranked.worker]
        if not seat.fits():
            passed.append(seat.id)
            continue
        reason = Reason.RETRY if tried else Reason.SPILL if passed and ask.prefix.tokens else ranked.reason
        choice = Choice(seat, reason, ranked.expected, tuple(passed))
        if not seat.health.pressed(now):
            return choice
        passed.append(seat.id)
        pressed = pressed or choice
    return pressed
