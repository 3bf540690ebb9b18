"""Choosing: the policy's order, and the first in it that fits.

Retry is the same order without those tried. A worker that is full is passed over; one that just said 503 or 429, or is
eased in or out, is passed over while another fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.contracts import Ask, Policy
from router.core.seat import Seat
from router.types import Reason


class Choice:
    """The worker, why, how many cached tokens are expected there, and who was passed over for its load."""

    __slots__ = ("expected", "passed", "reason", "seat")

    def __init__(self, seat: Seat, reason: str, expected: float, passed: tuple[str, ...]) -> None:
        self.seat = seat
        self.reason = reason
        self.expected = expected
        self.passed = passed

    def __repr__(self) -> str:
        return f"Choice({self.seat.id}, {self.reason}, {self.expected}, {self.passed})"


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
