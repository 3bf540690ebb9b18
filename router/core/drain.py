"""How fast a waiting room empties: those that left it for a worker, over the time in which somebody waited.

Both are forgotten by halves, and only while somebody waits: an empty room says nothing of how fast it would empty.
"""

from __future__ import annotations

from math import log

HALF_LIFE = 20.0  # seconds of waiting
SURE = 3.0  # left, in numbers that fade: fewer are no ground to send anybody away
STALE = 60.0  # seconds without anybody waiting, after which what is known is of another time


class Drain:
    __slots__ = ("_left", "_seconds", "_since", "waiting")

    def __init__(self, now: float) -> None:
        self.waiting = 0
        self._since = now
        self._left = self._seconds = 0.0

    def enter(self, now: float) -> None:
        if not self.waiting and now - self._since > STALE:
            self._left = self._seconds = 0.0
        self._pass(now)
        self.waiting += 1

    def leave(self, now: float, *, served: bool) -> None:
        self._pass(now)
        self.waiting -= 1
        self._left += served

    def rate(self, now: float) -> float | None:
        """A second; None while nothing is known."""
        if self.waiting:
            self._pass(now)
        elif now - self._since > STALE:
            return None
        return self._left / self._seconds if self._left >= 1.0 and self._seconds > 0.0 else None

    def sure_rate(self, now: float) -> float | None:
        """The same, where enough were seen to send somebody away for it."""
        rate = self.rate(now)
        return rate if self._left >= SURE else None

    def _pass(self, now: float) -> None:
        if self.waiting and now > self._since:
            kept = 0.5 ** ((now - self._since) / HALF_LIFE)
            self._left *= kept
            self._seconds = self._seconds * kept + (1.0 - kept) * HALF_LIFE / log(2)
        self._since = max(now, self._since)
