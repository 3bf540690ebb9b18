"""How some workers stand against each other, so that a decision need not look at every one of them.

The orders are those of `orders.py`; one that nobody looks at any more is given up, and costs nothing.

`rising` is the threshold algorithm (Fagin, Lotem and Naor, 2003): walk several orders at once; whoever was met in none
so far costs at least what the rows reached now would cost together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final, TypeVar

from router.core.orders import Left, Order, Requests, Sent, Work
from router.core.seat import Seat

SMALL: Final = 24  # workers: so few are looked at one by one in less time than it takes to keep an order
SAFE: Final = 1 - 1e-9  # times a bound: sums of floats differ in their last places with the order of the terms

Kind = TypeVar("Kind", bound=Order)


class Standing:
    """Of a fixed set of seats with fixed weights and speeds.

    by_id: the seats by their names; count: how many they are
    traffic: of all together
    fastest, slowest: speeds
    """

    __slots__ = ("_best", "_best_known", "_by_speed", "_left", "_requests", "_seats", "_sent", "_work", "by_id",
                 "count", "fastest", "slowest", "traffic")  # fmt: skip

    def __init__(self, seats: Sequence[Seat]) -> None:
        self._seats = list(seats)
        self.count = len(self._seats)
        self.by_id = {seat.id: seat for seat in self._seats}
        self._by_speed = sorted(self._seats, key=_speed, reverse=True)
        self.fastest = self._by_speed[0].speed if seats else 1.0
        self.slowest = self._by_speed[-1].speed if seats else 1.0
        self._work: Work | None = None
        self._left: Left | None = None
        self._requests: Requests | None = None
        self._sent: Sent | None = None
        self._best: float | None = None
        self._best_known = False
        self.traffic = 0.0
        self.recount()
        for seat in self._seats:
            seat.load.readers.append(self)

    def recount(self) -> None:
        """All traffic changed at once, as it does now and then: time to give up what nobody asked for since."""
        self.traffic = sum([seat.load.traffic for seat in self._seats])
        self._work = _kept(self._work)
        self._left = _kept(self._left)
        self._requests = _kept(self._requests)
        self._sent = _kept(self._sent)

    def dissolve(self) -> None:
        """Nobody will ask it any more."""
        for seat in self._seats:
            seat.load.readers = [reader for reader in seat.load.readers if reader is not self]
        for order in (self._work, self._left, self._requests, self._sent):
            if order is not None:
                order.dissolve()
        self._work, self._left, self._requests, self._sent = None, None, None, None

    def by_work(self) -> Work:
        if self._work is None:
            self._work = Work(self._seats)
        return self._work

    def by_left(self, now: float) -> Left:
        if self._left is None:
            self._left = Left(self._seats, now)
        return self._left

    def by_requests(self) -> Requests:
        if self._requests is None:
            self._requests = Requests(self._seats)
        return self._requests

    def by_traffic(self) -> Sent:
        if self._sent is None:
            self._sent = Sent(self._seats)
        return self._sent

    def least_mean_wait(self) -> float:
        """No more tokens than this wait at a worker in the mean."""
        return sum([row[0] for row in self.by_work().rows()]) * self.slowest / self.count * SAFE

    def best_pace(self) -> float | None:
        """The highest that was learnt of any."""
        if not self._best_known:
            self._best = max([seat.load.pace for seat in self._seats if seat.load.pace is not None], default=None)
            self._best_known = True
        return self._best

    def pace_learnt(self, before: float | None, after: float) -> None:
        best = self._best
        if best is None or after >= best:
            self._best = after
        elif before is not None and before >= best:
            self._best_known = False

    def rising(self, base: float, slope: float, now: float) -> Iterator[tuple[float, Seat]]:
        """Every seat once. The number with it never falls, and neither this seat nor any that comes later has less of

        (wait + base + slope * traffic) / speed
        """
        work = self.by_work().rows()
        sent = self.by_traffic().rows() if slope > 0.0 else work  # then any order will do
        by_pace, fallen = work, 0.0
        if work[0][0] > 0.0:  # all are busy: the least that waits says little of what waits
            left = self.by_left(now)
            fallen = left.fallen(now)
            by_pace = left.rows()
        even = self.slowest == self.fastest or base <= 0.0
        speeds = repeat(self._by_speed[0]) if even else self._by_speed
        met: set[Seat] = set()
        for waits, paced, carried, speedy in zip(work, by_pace, sent, speeds, strict=False):
            wait = paced[0] - fallen
            if wait < waits[0]:
                wait = waits[0]
            bound = (wait + base / speedy.speed + slope * carried[0]) * SAFE
            for seat in (carried[4], paced[4], waits[4], speedy):
                if seat not in met:
                    met.add(seat)
                    yield bound, seat


def _speed(seat: Seat) -> float:
    return seat.speed


def _kept(order: Kind | None) -> Kind | None:
    """The order, made anew, or nothing where nobody looked at it."""
    if order is None or not order.asked:
        if order is not None:
            order.dissolve()
        return None
    order.build()
    order.asked = False
    return order
