"""When every worker that could take a request is full: it waits its turn, and leaves the room exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.queue import too_long
from router.events import Queued

if TYPE_CHECKING:
    from router.journey import Journey


def wait(journey: Journey, now: float) -> None:
    """Take a place in the room. Raises Overloaded when there is none."""
    house = journey.house
    journey.ticket = house.room.enter(lambda: wake(journey), lambda: expire(journey), now)
    house.sweep_room()


def wake(journey: Journey) -> bool:
    """It may be this request's turn. True when it leaves the room: for a worker, or because none is left."""
    now = journey.house.clock()
    choice = journey.choose(now)
    if choice is None and journey.some_left():
        return False
    leave_room(journey, admitted=choice is not None)
    if choice is not None:
        journey.guarded(lambda: journey.send(choice, now))
    else:
        journey.refuse(journey.house.none_ready())
    return True


def expire(journey: Journey) -> None:
    """Its time is up."""
    leave_room(journey, admitted=False)
    journey.refuse(too_long())


def leave_room(journey: Journey, *, admitted: bool) -> None:
    """Give the place back, for whatever reason."""
    ticket, journey.ticket = journey.ticket, None
    if ticket is not None:
        journey.house.room.leave(ticket)
        journey.house.emit(Queued(journey.house.clock() - ticket.entered, admitted))
