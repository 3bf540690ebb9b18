"""Choosing: the policy's order, and the first in it that fits.

Retry is the same order without those tried. A worker that is full is passed over; one that just said 503 or 429, or is
eased in or out, is passed over while another fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from router.contracts import Ask, Policy
from router.core.seat import Seat
from router.types import Reason


class Choice(msgspec.Struct, frozen=True):
    """The worker, why, how many cached tokens are expected there, and who was passed over for its load."""

    seat: Seat
    reason: str
    expected: float
    passed: tuple[str, ...]


def choose(
    policy: Policy, ask: Ask, seats: Sequence[Seat], by_id: Mapping[str, Seat], tried: Sequence[str], now: float
) -> Choice | None:
    """The first that fits, or None when none does."""
    if not seats:
        return None
    passed: tuple[str, ...] = ()
    pressed: Choice | None = None
    for ranked in policy.order(ask, seats, now):
        worker, reason = ranked.worker, ranked.reason
        if worker in tried:
            continue
        seat = by_id[worker]
        most = seat.most
        load = seat.load
        if most is not None and load.in_flight + load.elsewhere >= most:
            passed += (worker,)
            continue
        if tried:
            reason = Reason.RETRY
        elif passed and reason != Reason.LOAD:
            reason = Reason.SPILL
        easing = seat.easing
        if now >= seat.health.pressed_until and (easing is None or easing.admits(load, ask.key, seats, now)):
            return Choice(seat, reason, ranked.expected, passed)
        pressed = pressed or Choice(seat, reason, ranked.expected, passed)
        passed += (worker,)
    return pressed
