"""A stream whose worker dies goes on at another one, where `routing.resume` says so.

The client has the head and a part of the answer, so nothing here answers it: either another worker takes the thread up
(`dialects/_thread.py` keeps it), or the stream is cut as it would have been.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from router.attempt import Attempt
from router.core.choose import Choice
from router.core.fleet import Seat
from router.core.health import REQUEST_FAILED
from router.core.load import Lease
from router.core.retry import BACK_PRESSURE, is_fault
from router.dialects._continuation import ENGINES, can_go_on
from router.dialects._thread import Thread
from router.elsewhere import blame, cut, tell
from router.errors import AttemptError, BrokenAnswer, IdleTimeout, LocalTrouble, Overloaded
from router.events import Resumed
from router.proxy.headers import Headers, find, retry_after
from router.sending import send
from router.waiting import wait

if TYPE_CHECKING:
    from router.journey import Journey

log = logging.getLogger("router")

RESUMABLE: Final = (b"x-router-resumable", b"true")
DEATHS: Final = (BrokenAnswer, IdleTimeout)
ENGINE: Final = "engine"  # the label that says what a worker runs, where its model list does not


def arm(journey: Journey, status: int, headers: Headers, length: int | None) -> bool:
    """An answer begins. Keep its thread if another worker could go on with it."""
    choice = journey.choice
    if choice is None or length is not None or not _is_stream(status, headers):
        return False
    if not can_go_on(journey.path, journey.body):
        return False
    thread = Thread(journey.path, journey.body)
    others = (seat for seat in journey.house.fleet.seats.values() if seat is not choice.seat)
    if not any(seat.serves(journey.model) and (not thread.is_chat or goes_on_with_chats(seat)) for seat in others):
        return False
    journey.followed = thread
    return True


def goes_on_with_chats(seat: Seat) -> bool:
    """Its engine goes on with an assistant's message: by its label, or by what its model list says."""
    return (seat.worker.labels.get(ENGINE) or seat.engine) in ENGINES


def _is_stream(status: int, headers: Headers) -> bool:
    """A good answer of events that can be read."""
    if status != 200 or (find(headers, b"content-encoding") or b"identity").lower() != b"identity":
        return False
    return (find(headers, b"content-type") or b"").lower().startswith(b"text/event-stream")


def go_on(journey: Journey, failure: AttemptError, broken: Attempt) -> bool:
    """The stream broke. True when another worker is asked to go on with it, or will be once it has room."""
    again = isinstance(failure, DEATHS) or (failure.certainly_not_run and not isinstance(failure, LocalTrouble))
    found = again and _next(journey, broken, failure.counts)
    if not found:
        journey.house.emit(Resumed(broken.choice.seat.id, "cut"))
        return False
    blame(journey, failure, broken.choice, retried=True)
    if isinstance(found, Choice):
        send_on(journey, found, journey.house.clock())
    return True


def _next(journey: Journey, broken: Attempt, counts: bool) -> Choice | bool:
    """The worker to ask: the next in the policy's order for the prompt as it was. True: all that could are full, and it
    waits for one; False: nobody can."""
    house, thread = journey.house, journey.followed
    journey.counted += counts
    journey.tried += (broken.choice.seat.id,)
    body = thread.onward() if thread is not None and journey.counted < house.max_tries else None
    if thread is None or body is None:
        return False
    journey.body = body
    if thread.needs_engine:
        journey.tried += tuple(seat.id for seat in house.fleet.seats.values() if not goes_on_with_chats(seat))
    now = house.clock()
    choice = journey.choose(now)
    if choice is not None or not journey.some_left():
        return choice or False
    journey.hope = None
    try:
        wait(journey, now)
    except Overloaded:
        return False
    return True


def send_on(journey: Journey, choice: Choice, now: float, *, fresh: bool = True) -> None:
    """On a fresh connection always: a kept one that is stale would be one more thing that can go wrong."""
    thread = journey.followed
    try:
        if thread is not None and thread.needs_engine and not goes_on_with_chats(choice.seat):
            cut(journey)  # it joined while this waited
            return
        send(journey, choice, now, fresh=True, kind=Continuation)
        if journey.sink.paused:
            journey.pause()
    except Exception:
        log.exception("%s: a fault in the gateway", journey.request_id)
        cut(journey)
    journey.body = b""


class Continuation(Attempt):
    """A try at going on with a stream that another worker began."""

    __slots__ = ()

    def __init__(self, journey: Journey, choice: Choice, lease: Lease) -> None:
        super().__init__(journey, choice, lease)
        self.answered = True  # the client has its status

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        journey, seat = self.journey, self.choice.seat
        if _is_stream(status, headers):
            journey.resumed += 1
            journey.house.emit(Resumed(seat.id, "went_on"))
            self._pass([b": resumed at %s\n\n" % seat.id.encode()])
            return
        if status in BACK_PRESSURE:
            seat.health.press(journey.house.clock(), retry_after(headers))
        self.cancel()
        self._turned_away(status)

    def _pass(self, pieces: list[bytes]) -> None:
        super()._pass(pieces)
        thread = self.journey.followed
        if thread is not None and thread.spoken > thread.before:
            self.lease.first_token(self.journey.house.clock())

    def _turned_away(self, status: int) -> None:
        """The worker answers, and does not go on. That it is busy or has a fault is no word on the next one."""
        journey = self.journey
        again = status in BACK_PRESSURE or is_fault(status)
        found = again and _next(journey, self, counts=True)
        tell(journey, self.choice, f"status_{status}", retried=bool(found))
        if is_fault(status):
            if journey.ask is not None:
                journey.house.mind.failed(journey.ask, self.choice.seat, journey.house.clock())
            journey.house.signal(self.choice.seat, REQUEST_FAILED, f"status_{status}")
        if isinstance(found, Choice):
            send_on(journey, found, journey.house.clock())
        elif not found:
            journey.house.emit(Resumed(self.choice.seat.id, "cut"))
            cut(journey)
