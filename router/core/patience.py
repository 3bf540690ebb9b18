"""Whether it pays to wait for a full worker that holds a prompt, although another one has room.

Both times are told in seconds to the first token. Elsewhere: what waits there, and the part of the prompt that it does
not hold, at its pace. At the warm worker: until as many requests ended there as are ahead, and what little is left to
compute. Paces and how long requests stay are learnt; while they are not known nobody waits. One that waits does so no
longer than it hoped to gain, then it takes what has room: so no wrong guess costs more than twice the better way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from router.contracts import Ask
from router.core.choose import Choice
from router.core.fleet import Seat
from router.core.health import TRIAL
from router.core.load import LEAST_WORK

FOLLOW: Final = 0.1  # how quickly the mean stay follows


class Hope(msgspec.Struct, frozen=True):
    """To get a place at this worker before that time."""

    worker: str
    until: float


class Patience:
    def __init__(self) -> None:
        self._stays: dict[str, float] = {}  # seconds that a request stays at a worker

    def stayed(self, worker: str, seconds: float) -> None:
        """A request was answered there."""
        known = self._stays.get(worker)
        self._stays[worker] = seconds if known is None else known + FOLLOW * (seconds - known)

    def forget(self, worker: str) -> None:
        self._stays.pop(worker, None)

    def hope(
        self, ask: Ask, choice: Choice, seats: Mapping[str, Seat], ahead: Mapping[str, int], now: float
    ) -> Hope | None:
        """The full worker to wait for; `ahead`: how many wait for each already."""
        paces = [seat.load.pace for seat in seats.values() if seat.load.pace is not None]
        if not paces:
            return None
        usual = max(paces)
        found, least = None, _seconds(ask, choice.seat, choice.expected, usual, now)
        elsewhere = least
        for name in choice.passed:
            seat, stay = seats.get(name), self._stays.get(name)
            held = ask.held.get(name, 0) / ask.prefix.bytes_a_token
            if seat is None or stay is None or not _may_be_waited_for(seat, now) or held <= choice.expected:
                continue
            left = max(ask.prefix.tokens - held, LEAST_WORK * ask.prefix.tokens) / (seat.load.pace or usual)
            place = (ahead.get(name, 0) + 1) * stay / (seat.most or 1)
            if place + left < least:
                found, least = Hope(name, now + elsewhere - left), place + left
        return found


def _may_be_waited_for(seat: Seat, now: float) -> bool:
    """It is full, and well."""
    return seat.is_full() and seat.health.state is not TRIAL and now >= seat.health.pressed_until


def _seconds(ask: Ask, seat: Seat, held: float, usual: float, now: float) -> float:
    """To the first token, where there is room."""
    new = max(ask.prefix.tokens - held, LEAST_WORK * ask.prefix.tokens)
    return (seat.wait(now) + new) / (seat.load.pace or usual)
