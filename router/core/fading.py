"""When what was sent to workers recently is halved, so that it stays recent."""

from __future__ import annotations

from typing import Final

HALF_LIFE: Final = 41.6  # seconds; halving in whole steps has the mean age of a decay with a time constant of 60 s


class Fading:
    """When every worker's `traffic` is to be halved: together, in whole steps of `HALF_LIFE`.

    Whole steps, so that two processes that saw the same requests agree, whatever the moments between them.
    """

    __slots__ = ("_begin", "next_at")

    def __init__(self) -> None:
        self._begin: float | None = None
        self.next_at = 0.0

    def halvings(self, now: float) -> int:
        """How many halvings are due since the last call that said so; none are before `next_at`."""
        if self._begin is None:
            self._begin = now
        steps = int((now - self._begin) / HALF_LIFE)
        self._begin += steps * HALF_LIFE
        self.next_at = self._begin + HALF_LIFE
        return steps
