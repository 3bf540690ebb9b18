"""When every worker that could take a request is full, or the one that holds its prompt is and is worth waiting for: it
waits its turn, and leaves the room exactly once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from router import deadline
from router.core.choose import Choice
from router.core.queue import Ticket, Woken
from router.elsewhere import cut
from router.errors import InternalError, Overloaded, Refusal
from router.events import NoPlace, Queued

if TYPE_CHECKING:
    from router.journey import Journey

log = logging.getLogger("router")


def wait(journey: Journey, now: float) -> None:
    """Take a place in the room. Raises Overloaded when there is none."""
    house, ask, key = journey.house, journey.ask, journey.key
    assert ask is not None
    model = journey.model
    hope, journey.hope = journey.hope, None
    ticket = Ticket(
        lambda: wake(journey),
        lambda refusal, how: send_away(journey, refusal, how),
        priority=journey.priority,
        tenant=journey.tenant,
        weight=1.0 if key is None else key.weight,
        tokens=ask.prefix.tokens,
        model=model if model and house.fleet.known_model(model) else None,
        tried=journey.tried,
        within=deadline.left(journey, now),
        hope=hope,
    )
    try:
        house.room.enter(ticket, now)
    except Overloaded:
        house.emit(NoPlace(journey.priority))
        raise
    journey.ticket = ticket
    house.sweep_room()


def holds_out(journey: Journey, choice: Choice, now: float) -> bool:
    """The choice passes over a full worker that holds more of the prompt, and waiting for that one is quicker."""
    ticket, house = journey.ticket, journey.house
    if ticket is not None:
        hope = ticket.hope
        return hope is not None and hope.worker in choice.passed and now < hope.until
    journey.hope = None
    if journey.ask is None or journey.tried or len(house.room) >= house.room.most:
        return False
    hope = house.patience.hope(journey.ask, choice, house.fleet.seats, house.room.hoping, now)
    if hope is None or hope.until - now > min(house.room.wait_seconds, deadline.left(journey, now)):
        return False
    journey.hope = hope
    return True


def wake(journey: Journey) -> Woken:
    """It may be this request's turn. It leaves for a worker, or because none is left."""
    house = journey.house
    now = house.clock()
    if house.most is not None and house.is_full():
        return Woken.SHUT
    try:
        choice = journey.choose(now)
    except Exception:  # an outsider's policy may do anything; those behind still get their turn
        log.exception("%s: a fault in the gateway", journey.request_id)
        send_away(journey, InternalError("The gateway failed on this request; its log says why."), "no_worker")
        return Woken.GONE
    if choice is None and journey.some_left():
        hope = journey.ticket.hope if journey.ticket is not None else None
        return Woken.FULL if hope is None or now >= hope.until else Woken.LATER
    leave_room(journey, "no_worker" if choice is None else "admitted", choice)
    if choice is not None:
        journey.guarded(lambda: journey.send(choice, now))
    elif journey.status:
        cut(journey)
    else:
        journey.refuse(house.none_ready())
    return Woken.GONE


def send_away(journey: Journey, refusal: Refusal, how: str) -> None:
    """Its time is up, or somebody more important takes its place."""
    leave_room(journey, how)
    if journey.status:
        cut(journey)
    else:
        journey.refuse(refusal)


def leave_room(journey: Journey, how: str, choice: Choice | None = None) -> None:
    """Give the place back, for whatever reason."""
    ticket, journey.ticket = journey.ticket, None
    if ticket is None:
        return
    house = journey.house
    now = house.clock()
    house.room.leave(ticket, now, served=choice is not None)
    warm = None if ticket.hope is None or choice is None else choice.seat.id == ticket.hope.worker
    house.emit(Queued(now - ticket.entered, choice is not None, ticket.priority, how, warm))
