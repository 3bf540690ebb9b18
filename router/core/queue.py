"""The waiting room: who waits for a worker, for how long, and who is refused.

First come, first served. A request enters when every worker that could take it is at its limit; it leaves for a
worker, because its time is up, or because its client went away. Bounded: a full room refuses at once.
"""

from __future__ import annotations

from collections.abc import Callable

from router.errors import Overloaded


class Ticket:
    """A place in the room, held by one journey. `wake` is called when it may be its turn: it answers whether a worker
    was found."""

    __slots__ = ("deadline", "entered", "expired", "wake")

    def __init__(self, wake: Callable[[], bool], expired: Callable[[], None], entered: float, deadline: float) -> None:
        self.wake = wake
        self.expired = expired
        self.entered = entered
        self.deadline = deadline


class WaitingRoom:
    def __init__(self, most: int, wait_seconds: float) -> None:
        self.most = most
        self.wait_seconds = wait_seconds
        self._waiting: dict[Ticket, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<WaitingRoom {len(self)} of {self.most}>"

    def enter(self, wake: Callable[[], bool], expired: Callable[[], None], now: float) -> Ticket:
        """Take a place. Raises Overloaded when there is none."""
        if len(self._waiting) >= self.most:
            raise Overloaded("Every worker is at its limit and the queue is full; try again shortly.", retry_after=1.0)
        ticket = Ticket(wake, expired, now, now + self.wait_seconds)
        self._waiting[ticket] = None
        return ticket

    def leave(self, ticket: Ticket) -> bool:
        """Give the place back. True the first time."""
        return self._waiting.pop(ticket, self) is not self

    def pump(self) -> None:
        """A worker has room: wake those that wait, in order, until one finds none.

        One that finds none may want a model whose workers are all full, so the others still get their turn.
        """
        for ticket in list(self._waiting):
            if ticket in self._waiting and ticket.wake():
                self.leave(ticket)

    def expire(self, now: float) -> None:
        """Tell those whose time is up; they were entered in the order of their deadlines."""
        for ticket in list(self._waiting):
            if ticket.deadline > now:
                return
            if self.leave(ticket):
                ticket.expired()


def too_long() -> Overloaded:
    """The refusal of one whose time was up."""
    return Overloaded("No worker had room within queue.wait_seconds; try again later.", retry_after=1.0)
