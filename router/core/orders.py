"""Orders of workers that are put right when they are looked at.

An order keeps all seats in ascending order of a key that follows from the ledger. A seat whose numbers changed is only
remembered as late; it is put in its place when the order is next looked at. So a request costs a large fleet what a
few places cost.

The law, which everything here can be checked by: when an order is looked at, every row is what `key` says of its seat
now, and the rows ascend. As `Load.floor` is never above `Load.wait`, a row of `Work` is never above what the seat's
wait, requests and traffic are now, in this order of weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Final

from router.core.load import Load
from router.core.seat import Seat

STALE: Final = 0.05  # seconds
REBUILD: Final = 8  # when more than one in so many is late all are sorted anew

Row = tuple[float, float, float, str, Seat]  # a key, the last word of which is the worker's name; and whose it is


class Order(ABC):
    """Ascending rows. `asked`: somebody looked at them since that was last set back."""

    __slots__ = ("_known", "_late", "_rows", "_seats", "asked")

    def __init__(self, seats: Sequence[Seat]) -> None:
        self._seats = seats
        self._late: set[Load] = set()
        self._known: dict[Load, Row] = {}
        self._rows: list[Row] = []
        self.asked = True
        self.build()
        for seat in seats:
            seat.load.late.append(self._late)

    @abstractmethod
    def key(self, seat: Seat) -> Row:
        """Its row now."""

    def rows(self) -> list[Row]:
        """As they are now; whoever keeps it for later takes a copy."""
        self.asked = True
        late = self._late
        if late:
            if len(late) * REBUILD > len(self._rows):
                self.build()
            else:
                for load in late:
                    self._move(load)
                late.clear()
        return self._rows

    def build(self) -> None:
        self._known = {seat.load: self.key(seat) for seat in self._seats}
        self._rows = sorted(self._known.values())
        self._late.clear()

    def dissolve(self) -> None:
        """Nobody will look at it any more."""
        for seat in self._seats:
            seat.load.late = [late for late in seat.load.late if late is not self._late]

    def _move(self, load: Load) -> None:
        before = self._known[load]
        after = self.key(before[4])
        if after != before:
            rows = self._rows
            del rows[bisect_left(rows, before)]
            insort(rows, after)
            self._known[load] = after


class Work(Order):
    """By the tokens that wait at least, for the speed; then by requests and by traffic, for the weight."""

    __slots__ = ()

    def key(self, seat: Seat) -> Row:
        load, weight = seat.load, seat.weight
        requests = (load.in_flight + load.elsewhere) / weight
        return (load.floor() / seat.speed, requests, load.traffic / weight, seat.id, seat)


class Requests(Order):
    """By requests in flight, then by traffic, for the weight."""

    __slots__ = ()

    def key(self, seat: Seat) -> Row:
        load, weight = seat.load, seat.weight
        return ((load.in_flight + load.elsewhere) / weight, load.traffic / weight, 0.0, seat.id, seat)


class Sent(Order):
    """By traffic, for the speed."""

    __slots__ = ()

    def key(self, seat: Seat) -> Row:
        return (seat.load.traffic / seat.speed, 0.0, 0.0, seat.id, seat)


class Left(Order):
    """By the tokens that would be left at `epoch`, were a prefill never over (`Load.line`), for the speed; then like
    `Work`. Later they are fewer by what the steepest of them falls meanwhile, at most: where all are as fast they fall
    together, and their order stays. `steepest`: tokens a second, for the speed."""

    __slots__ = ("epoch", "steepest")

    def __init__(self, seats: Sequence[Seat], now: float) -> None:
        self.epoch = now
        self.steepest = 0.0
        super().__init__(seats)

    def key(self, seat: Seat) -> Row:
        load, weight = seat.load, seat.weight
        self.steepest = max(self.steepest, (load.pace or 0.0) / seat.speed)
        requests = (load.in_flight + load.elsewhere) / weight
        left = max(load.line(self.epoch), load.floor())
        return (left / seat.speed, requests, load.traffic / weight, seat.id, seat)

    def fallen(self, now: float) -> float:
        """By so much the rows' numbers are too high now, at most. Rows of long ago are made anew."""
        if now - self.epoch > STALE:
            self.epoch, self.steepest = now, 0.0
            self.build()
        self.rows()
        return max(now - self.epoch, 0.0) * self.steepest
