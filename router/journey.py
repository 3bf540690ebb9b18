"""The story: one request's life, top to bottom.

    begin, feed, complete        the request comes in
    _route, try_one              read and hash (admission.py), choose, send (sending.py; waiting.py: all are full)
    answer, first_token, done    the answer passes (attempt.py moves its bytes; elsewhere.py: another worker)
    cancel, refuse, finish       every end: what was taken goes back, once

Driven by callbacks, so that the fast lane needs no task and no event; each step calls the next. Whatever is taken on
the way is given back by `finish`, which runs on every way out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

from router import deadline
from router.admission import admit, let_in
from router.attempt import Attempt, Held
from router.contracts import Ask, Place, Sink
from router.core.choose import Choice
from router.core.fleet import Seat
from router.core.health import REQUEST_OK
from router.core.keys import Key
from router.core.patience import Hope
from router.core.queue import Ticket
from router.core.rates import Account
from router.dialects._thread import Thread
from router.elsewhere import answer_held
from router.ending import finished, passed_on, phase, refusal_headers, too_large
from router.errors import AttemptError, InternalError, Refusal, RequestTimeout
from router.events import FirstToken
from router.house import House
from router.large import LARGE
from router.proxy.headers import Headers, request_id, take_in
from router.proxy.relay import Meter
from router.resuming import RESUMABLE, arm, go_on, send_on
from router.sending import send
from router.waiting import holds_out, leave_room, wait

log = logging.getLogger("router")

NO_HEADERS: Headers = []  # never changed in place


class Journey:
    ask: Ask | None = None
    model: str | None = None
    attempt: Attempt | None = None  # the latest
    choice: Choice | None = None  # whose answer the client is given, or the latest
    ticket: Ticket | None = None
    followed: Thread | None = None  # a stream that another worker could go on with
    failure: AttemptError | None = None
    held: Held | None = None
    tenant: str | None = None
    key: Key | None = None
    hope: Hope | None = None  # it would rather wait for this worker than take another
    account: Account | None = None  # its caller's, where requests are counted
    tried: tuple[str, ...] = ()
    deadline: float = inf
    first_byte_at: float | None = None
    first_token_at: float | None = None

    def __init__(self, house: House, place: Place, target: bytes, headers: Headers, sink: Sink) -> None:
        self.house = house
        self.started = house.clock()
        self.attempts = self.counted = self.status = self.size = self.resumed = self.priority = 0
        self.ended = self.resent = self.stream = False
        self.decision_seconds = self.whole_at = self.sent_at = 0.0  # whole: its last byte came; sent: to a worker
        self.path, self.dialect = place
        self.target = target
        self.sink = sink
        self.client = sink.peer if house.origins is None else house.client_of(sink.peer, headers)
        self.cors = NO_HEADERS if house.cors is None else house.cors.headers(headers)  # what browsers are told
        self.intake = take_in(headers)
        self.request_id = request_id(self.intake.given_id)
        self.meter = Meter(self.dialect)
        self.parts: list[bytes] = []

    # The request comes in.

    def begin(self, headers: Headers) -> None:
        """Who asks, and how much is coming."""
        try:
            if self.house.checks_keys:
                let_in(self, headers)
            if (self.intake.length or 0) > self.house.most_body_bytes:
                raise too_large(self.house)
            if self.intake.timeout is not None or self.house.total_seconds is not None:
                deadline.begin(self)
        except Refusal as refusal:
            self.refuse(refusal)

    def feed(self, data: bytes) -> None:
        if self.ended:
            return
        self.parts.append(data)
        self.size += len(data)
        if self.size > self.house.most_body_bytes:
            self.refuse(too_large(self.house))

    def late(self) -> None:
        self.refuse(RequestTimeout("The request did not come within timeouts.client_read_seconds."))

    def complete(self) -> None:
        if not self.ended:
            self.whole_at = self.house.clock()
            self.body = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
            self.parts = []
            if self.size < LARGE:
                self.guarded(self._route)
            else:
                self.house.large.add(lambda: None if self.ended else self.guarded(self._route))

    # Read, hash, choose, send.

    def _route(self) -> None:
        admit(self)
        if self.house.pumping:
            self.house.pump()  # those that wait go first
        self.try_one()

    def try_one(self) -> None:
        now = self.house.clock()
        choice = self.choose(now)
        if choice is not None:
            self.decision_seconds = self.house.clock() - self.whole_at
            self.send(choice, now)
        elif self.held is not None:
            answer_held(self, self.held)
        elif self.some_left():
            wait(self, now)
        elif self.failure is not None:
            raise self.failure.answer(f"No worker could be reached ({self.failure.kind}).", retry_after=1.0)
        else:
            raise self.house.none_ready()

    def choose(self, now: float) -> Choice | None:
        assert self.ask is not None
        house = self.house
        if house.most is not None and house.is_full():
            return None
        choice = house.mind.choose(self.ask, self.model, self.tried, now)
        return None if choice is not None and choice.passed and holds_out(self, choice, now) else choice

    def some_left(self) -> bool:
        """Some usable worker was not tried, be it full."""
        return any(seat.id not in self.tried for seat in self.house.fleet.candidates(self.model))

    def send(self, choice: Choice, now: float, *, fresh: bool = False) -> None:
        """Send it there; `fresh`: on a new connection."""
        (send if self.followed is None else send_on)(self, choice, now, fresh=fresh)

    # The answer passes.

    def answer(self, status: int, headers: Headers, length: int | None, now: float) -> None:
        self.status = status
        self.first_byte_at = now
        self.meter.begin(headers)
        passed = passed_on(self, headers)
        if self.house.resumes and arm(self, status, headers, length):
            passed.append(RESUMABLE)
        else:
            self.let_go()
        self.sink.head(status, passed, length)

    def let_go(self) -> None:
        """No worker will be asked again: a long stream need not keep its prompt in memory."""
        self.body = b""
        if self.ask is not None:
            self.ask.text = self.ask.body = b""

    def go_on(self, failure: AttemptError, broken: Attempt) -> bool:
        """Another worker is asked to go on with the stream that this one broke, if any may be."""
        return go_on(self, failure, broken)

    def first_token(self, now: float) -> None:
        self.first_token_at = now
        allowed = self.house.slo.allowed(self.ask) if self.ask is not None else 0.0
        self.house.emit(FirstToken(self.model or "", now - self.started, allowed))

    def done(self, seat: Seat) -> None:
        if self.status < 400:
            seat.answered += 1
            if not seat.health.calm():
                self.house.signal(seat, REQUEST_OK)
        self.attempt = None  # it has given everything back
        if seat.most is not None and self.house.fleet.seats.get(seat.id) is seat:
            self.house.patience.stayed(seat.id, self.house.clock() - self.sent_at)
        self.finish(self.status)
        self.sink.end()

    def own_headers(self) -> Headers:
        own = [(b"x-request-id", self.request_id.encode()), *self.cors]
        return own if self.choice is None else own + self.house.routed_headers(self.choice)

    # Every end.

    def cancel(self) -> None:
        if not self.ended:
            self.finish(499, cancelled_in=phase(self))

    def overdue(self, now: float) -> None:
        """All the time that it had is up."""
        deadline.passed(self)

    def pause(self) -> None:
        if self.attempt is not None and self.attempt.connection is not None:
            self.attempt.connection.pause()

    def resume(self) -> None:
        if self.attempt is not None and self.attempt.connection is not None:
            self.attempt.connection.resume()

    def refuse(self, refusal: Refusal) -> None:
        if self.ended:
            return
        content_type, body = self.dialect.refusal(refusal)
        self.finish(refusal.status, code=refusal.code)
        self.sink.head(refusal.status, refusal_headers(refusal, content_type) + self.own_headers(), len(body))
        self.sink.body(body)
        self.sink.end()

    def guarded(self, step: Callable[[], None]) -> None:
        """Run a step; what it refuses becomes the answer, and a fault of ours becomes a 500, never silence."""
        try:
            step()
        except Refusal as refusal:
            self.refuse(refusal)
        except Exception:
            log.exception("%s: a fault in the gateway", self.request_id)
            self.refuse(InternalError("The gateway failed on this request; its log says why."))

    def finish(
        self, status: int, *, code: str | None = None, cancelled_in: str | None = None, cut: bool = False
    ) -> None:
        """What was taken goes back, and the fact is told. Only the first call counts."""
        if self.ended:
            return
        self.ended = True
        attempt, self.attempt = self.attempt, None  # no cycle is left: what a request took is freed with it, at once
        if attempt is not None:
            attempt.cancel()
        if self.ticket is not None:
            leave_room(self, "gone")
        if self.deadline != inf:
            self.house.sweep.forget(self)
        self.house.emit(finished(self, status, code, cancelled_in, cut))
