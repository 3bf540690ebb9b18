"""Workers that are eased in or out: slow start for one that joins, hand-over from one that will leave.

Both only make the worker less wanted for a while, like back-pressure: the ring stays as it is, and where nobody else
fits they are used all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from router.core.load import Load
from router.types import Key

SPREAD: Final = 0x9E3779B97F4A7C15  # Fibonacci hashing: keys near each other on the ring leave at different times
BITS: Final = 64


class Loaded(Protocol):
    @property
    def load(self) -> Load: ...


class Ease(Protocol):
    """Whether the worker takes a request with this key now; `others` are all workers that may be used."""

    until: float

    def admits(self, own: Load, key: Key, others: Sequence[Loaded], now: float) -> bool: ...


class SlowStart:
    """A worker that joined a fleet at work starts cold: its share of the concurrent load grows over `seconds`.

    It may have as many requests in flight as the mean of all, times the share of the time that has passed; one that is
    idle is never passed over.
    """

    __slots__ = ("begin", "seconds", "until")

    def __init__(self, begin: float, seconds: float) -> None:
        self.begin, self.seconds, self.until = begin, seconds, begin + seconds

    def admits(self, own: Load, key: Key, others: Sequence[Loaded], now: float) -> bool:
        if own.in_flight == 0 or now >= self.until:
            return True
        share = (now - self.begin) / self.seconds
        mean = sum(each.load.in_flight for each in others) / len(others)
        return own.in_flight < max(1.0, share * mean)


class HandOver:
    """A worker that will leave gives its prefixes away one after the other, so that they are not all computed anew at
    one moment: the share of keys that has moved grows with the time, in an order fixed by the keys themselves."""

    __slots__ = ("begin", "seconds", "until")

    def __init__(self, begin: float, seconds: float) -> None:
        self.begin, self.seconds, self.until = begin, max(seconds, 1e-3), begin + seconds

    def admits(self, own: Load, key: Key, others: Sequence[Loaded], now: float) -> bool:
        turn = (key.value * SPREAD % (1 << BITS)) / (1 << BITS)
        return turn >= (now - self.begin) / self.seconds
