"""One try at one worker: it holds the lease and the connection, and passes the answer on as it arrives.

An attempt ends in exactly one way and tells its journey so: the answer is over (`done`), the worker failed (`failed`),
or it said 503 or 429 while another worker could be asked (`turned_away`). Cancelling ends it without a word. Whatever
the way, lease and connection are given back once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.core.choose import Choice
from router.core.health import REQUEST_FAILED
from router.core.load import Lease
from router.core.retry import BACK_PRESSURE, is_fault
from router.dialects._thread import Thread
from router.elsewhere import failed, may_ask_another, turned_away
from router.errors import AttemptError
from router.proxy.exchange import Connection
from router.proxy.headers import Headers, retry_after
from router.proxy.upstream import Waiting

if TYPE_CHECKING:
    from router.journey import Journey

MOST_HELD: Final = 65_536  # bytes of a worker's 503 or 429 that are kept while another worker is asked


class Held:
    """A worker's 503 or 429, kept in case every other says the same or cannot be reached."""

    __slots__ = ("choice", "headers", "length", "pieces", "size", "status")

    def __init__(self, status: int, headers: Headers, length: int | None, choice: Choice) -> None:
        self.status, self.headers, self.length, self.choice = status, headers, length, choice
        self.pieces: list[bytes] = []
        self.size = 0


class Attempt:
    __slots__ = ("answered", "choice", "connection", "held", "journey", "lease")

    def __init__(self, journey: Journey, choice: Choice, lease: Lease) -> None:
        self.journey = journey
        self.choice = choice
        self.lease = lease
        self.answered = False  # the client has been given this worker's status
        self.connection: Connection | Waiting | None = None
        self.held: Held | None = None

    @property
    def phase(self) -> str:
        """How far it is."""
        if self.answered:
            return "streaming"
        return "waiting" if self.connection is None or self.connection.is_open else "connecting"

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.cancel()
        self.release()

    def release(self) -> None:
        if self.lease.release():
            self.journey.house.freed()

    # The worker's side calls these.

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        if status in BACK_PRESSURE:
            self.choice.seat.health.press(self.journey.house.clock(), retry_after(headers))
            if may_ask_another(self.journey, status):
                self.held = Held(status, headers, length, self.choice)
                return
        self._begin_answer(status, headers, length)

    def on_body(self, pieces: list[bytes]) -> None:
        held = self.held
        if held is None:
            self._pass(pieces)
            return
        held.pieces += pieces
        held.size += sum(map(len, pieces))
        if held.size > MOST_HELD:
            self.held = None
            self._begin_answer(held.status, held.headers, held.length)
            self._pass(held.pieces)

    def on_read(self) -> None:
        if self.answered:
            self.journey.sink.flush()

    def on_end(self) -> None:
        self.connection = None
        self.release()
        if self.held is not None:
            turned_away(self.journey, self.held)
        else:
            if self.journey.followed is not None:
                self._pass([])
            self.journey.done(self.choice.seat)

    def on_failure(self, failure: AttemptError) -> None:
        self.connection = None
        self.release()
        if self.held is not None:
            turned_away(self.journey, self.held)
        else:
            failed(self.journey, failure, self)

    def _begin_answer(self, status: int, headers: Headers, length: int | None) -> None:
        journey = self.journey
        now = journey.house.clock()
        self.answered = True
        if is_fault(status):
            if journey.ask is not None:
                journey.house.mind.failed(journey.ask, self.choice.seat, now)
            journey.house.signal(self.choice.seat, REQUEST_FAILED, f"status_{status}")
        journey.answer(status, headers, length, now)
        if not journey.meter.streaming:
            self.lease.first_token(now)  # one JSON answer comes when all is generated

    def _pass(self, pieces: list[bytes]) -> None:
        journey = self.journey
        if journey.followed is not None:
            pieces = self._follow(journey.followed, pieces)
        if journey.meter.read(pieces):
            now = journey.house.clock()
            self.lease.first_token(now)
            journey.first_token(now)
        body = journey.sink.body
        for piece in pieces:
            body(piece)

    def _follow(self, thread: Thread, pieces: list[bytes]) -> list[bytes]:
        """What of these may be passed on, so that another worker can go on with the stream; none: it is over."""
        pieces = thread.take(pieces) if pieces else thread.rest()
        if not thread.open and not thread.joined:
            self.journey.followed = None
            self.journey.let_go()
        return pieces
