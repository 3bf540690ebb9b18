"""The story: one request's life, top to bottom.

    begin, feed, complete        the request comes in
    _route, _attempt, _send      read, hash, choose, send
    answer, first_token, done    the answer passes (attempt.py moves its bytes)
    failed, turned_away          another worker, where the law allows
    cancel, _refuse, _finish     every end: what was taken goes back, once

Driven by callbacks, so that the fast lane needs no task and no event; each step calls the next. Whatever is taken on
the way is given back by `_finish`, which runs on every way out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from router.attempt import Attempt, Held
from router.contracts import Ask, Dialect, Request, Sink
from router.core.choose import Choice
from router.core.health import REQUEST_FAILED, REQUEST_OK
from router.core.mind import Caller
from router.core.queue import Ticket, too_long
from router.core.retry import may_retry, may_retry_status
from router.errors import (
    AttemptError,
    InternalError,
    InvalidJson,
    LocalTrouble,
    Refusal,
    RequestTimeout,
    RequestTooLarge,
    StaleConnection,
    Unreachable,
)
from router.events import AttemptFailed, Chosen, FirstByte, FirstToken, Queued
from router.house import House
from router.prompt import NOTHING, Prompt
from router.proxy.headers import Headers, find, request_id, to_client, to_worker
from router.proxy.relay import NO_USAGE, Meter
from router.record import Record

log = logging.getLogger("router")


class Journey:
    __slots__ = ("ask", "attempt", "body", "caller", "counted", "dialect", "ended", "failure", "held", "house", "meter",
                 "model", "parts", "prompt", "record", "request", "resent", "sink", "status", "ticket",
                 "tried")  # fmt: skip

    def __init__(self, house: House, request: Request, dialect: Dialect, sink: Sink) -> None:
        self.house = house
        self.request = request
        self.dialect = dialect
        self.sink = sink
        self.record = Record(request_id(find(request.headers, b"x-request-id")), request.path, house.clock())
        self.meter = Meter(dialect)
        self.parts: list[bytes] = []
        self.tried: tuple[str, ...] = ()
        self.counted = self.status = 0
        self.ended = self.resent = False
        self.ask: Ask | None = None
        self.attempt: Attempt | None = None
        self.ticket: Ticket | None = None
        self.failure: AttemptError | None = None
        self.held: Held | None = None

    # The request comes in.

    def begin(self) -> None:
        headers = self.request.headers
        try:
            self.caller = self.house.caller(headers)
            self.record.tenant = self.caller.tenant
            length = find(headers, b"content-length")
            if length is not None and int(length) > self.house.settings.limits.body_bytes:
                raise self._too_large()
        except Refusal as refusal:
            self._refuse(refusal)

    def feed(self, data: bytes) -> None:
        if self.ended:
            return
        self.parts.append(data)
        self.record.bytes_in += len(data)
        if self.record.bytes_in > self.house.settings.limits.body_bytes:
            self._refuse(self._too_large())

    def late(self) -> None:
        self._refuse(RequestTimeout("The request did not come within timeouts.client_read_seconds."))

    def complete(self) -> None:
        if self.ended:
            return
        self.body = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        self.parts = []
        self._guarded(self._route)

    # Read, hash, choose, send.

    def _route(self) -> None:
        house = self.house
        self.prompt = self._read()
        self.model = house.model(self.prompt)
        self.ask = house.mind.weigh(self.prompt, self.caller, self.body, native=self.dialect.native)
        self.record.asked(self.model, self.ask, stream=self.prompt.stream)
        self._attempt()

    def _read(self) -> Prompt:
        try:
            return self.dialect.read(self.request.path, self.body)
        except InvalidJson:
            raise
        except Exception as wrong:  # extraction never fails a request: the worker may know better
            log.warning("%s: the prompt could not be read (%s)", self.record.request_id, type(wrong).__name__)
            return NOTHING

    def _attempt(self) -> None:
        now = self.house.clock()
        choice = self._choose(now)
        if choice is not None:
            self._send(choice, now)
        elif self.held is not None:
            self._answer_held(self.held)
        elif self._left():
            self.ticket = self.house.room.enter(self._wake, self._expired, now)
            self.house.sweep_room()
        elif self.failure is not None:
            raise self.failure.answer(f"No worker could be reached ({self.failure.kind}).", retry_after=1.0)
        else:
            raise self.house.none_ready(self.model)

    def _choose(self, now: float) -> Choice | None:
        if self.house.is_full():
            return None
        assert self.ask is not None
        return self.house.mind.choose(self.ask, self.model, self.tried, now)

    def _left(self) -> bool:
        """Some usable worker was not tried, be it full."""
        return any(seat.id not in self.tried for seat in self.house.fleet.candidates(self.model))

    def _send(self, choice: Choice, now: float, *, fresh: bool = False) -> None:
        assert self.ask is not None
        house, record = self.house, self.record
        attempt = self.attempt = Attempt(self, choice, house.mind.commit(self.ask, choice, now, streaming=self.prompt.stream))
        record.attempted(choice)
        pool = house.pool(choice.seat)
        head = b"POST %s%sx-request-id: %s\r\n%scontent-length: %d\r\n\r\n" % (
            pool.base_path + self.request.target,
            pool.greeting,
            record.request_id.encode(),
            to_worker(self.request.headers, drop_credentials=house.checks_keys or pool.has_credentials),
            len(self.body),
        )
        house.emit(Chosen(record.request_id, choice.seat.id, record.model, choice.reason, self.ask.key.depth,
                          int(record.tokens), int(choice.expected), choice.passed, house.clock() - now))  # fmt: skip
        attempt.send(head, self.body, fresh=fresh)

    # The waiting room.

    def _wake(self) -> bool:
        """It may be our turn. True when we leave the room: for a worker, or because none is left."""
        now = self.house.clock()
        choice = self._choose(now)
        if choice is None and self._left():
            return False
        self._leave_room(now, admitted=choice is not None)
        if choice is not None:
            self._guarded(lambda: self._send(choice, now))
        else:
            self._refuse(self.house.none_ready(self.model))
        return True

    def _expired(self) -> None:
        self._leave_room(self.house.clock(), admitted=False)
        self._refuse(too_long())

    def _leave_room(self, now: float, *, admitted: bool) -> None:
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            self.house.room.leave(ticket)
            self.house.emit(Queued(now - ticket.entered, admitted))

    # The answer passes.

    def answer(self, status: int, headers: Headers, length: int | None, now: float) -> None:
        record = self.record
        self.status = status
        record.first_byte = now - record.started
        self.meter.begin(headers)
        self.house.emit(FirstByte(record.path, record.model, record.first_byte))
        self.sink.head(status, to_client(headers) + self._own_headers(), length)

    def first_token(self, now: float) -> None:
        record = self.record
        record.first_token = now - record.started
        self.house.emit(FirstToken(record.model, record.first_token))

    def done(self) -> None:
        if self.status < 400 and self.attempt is not None:
            self.house.signal(self.attempt.choice.seat, REQUEST_OK)
        self._finish(self.status)
        self.sink.end()

    def _own_headers(self) -> Headers:
        own = [(b"x-request-id", self.record.request_id.encode())]
        choice = self.record.choice
        if choice is not None:
            own += ((b"x-router-worker", choice.seat.id.encode()), (b"x-router-reason", choice.reason.encode()),
                    (b"x-router-policy", self.house.policy_header))  # fmt: skip
        return own

    # Another worker, where the law allows.

    def failed(self, failure: AttemptError, attempt: Attempt) -> None:
        if attempt.answered:
            self._blame(failure, attempt, retried=False)
            self._finish(self.status, cut=True)
            self.sink.abort()
        elif isinstance(failure, StaleConnection) and not self.resent:
            self.resent = True
            self.house.emit(AttemptFailed(attempt.choice.seat.id, failure.kind, retried=True))
            self._guarded(lambda: self._send(attempt.choice, self.house.clock(), fresh=True))
        else:
            self.counted += failure.counts
            retried = may_retry(failure, counted=self.counted, max_tries=self.house.max_tries, answered=False)
            self._blame(failure, attempt, retried=retried)
            if retried:
                self.failure = failure
                self._elsewhere(attempt.choice)
            else:
                self._refuse(failure.answer(f"The worker failed ({failure.kind}): {failure}."))

    def turned_away(self, held: Held) -> None:
        self.held = held
        self.counted += 1
        self.house.emit(AttemptFailed(held.choice.seat.id, f"status_{held.status}", retried=True))
        self._elsewhere(held.choice)

    def may_ask_another(self, status: int) -> bool:
        """The law allows it, and some other worker would take the request now."""
        assert self.ask is not None
        assert self.record.choice is not None
        if not may_retry_status(status, counted=self.counted + 1, max_tries=self.house.max_tries):
            return False
        tried = (*self.tried, self.record.choice.seat.id)
        return self.house.mind.choose(self.ask, self.model, tried, self.house.clock()) is not None

    def _elsewhere(self, choice: Choice) -> None:
        self.tried += (choice.seat.id,)
        self._guarded(self._attempt)

    def _blame(self, failure: AttemptError, attempt: Attempt, *, retried: bool) -> None:
        seat = attempt.choice.seat
        self.house.emit(AttemptFailed(seat.id, failure.kind, retried=retried))
        if isinstance(failure, Unreachable):
            self.house.mind.lost(seat)
        if not isinstance(failure, LocalTrouble):
            self.house.signal(seat, REQUEST_FAILED, failure.kind)

    def _answer_held(self, held: Held) -> None:
        """All others said the same or were not to be reached: the last such answer is passed on as it came."""
        self.record.choice = held.choice
        self._finish(held.status)
        self.sink.head(held.status, to_client(held.headers) + self._own_headers(), held.size)
        for piece in held.pieces:
            self.sink.body(piece)
        self.sink.end()

    # Every end.

    def cancel(self) -> None:
        if not self.ended:
            phase = "queued" if self.ticket else self.attempt.phase if self.attempt else "receiving"
            self._finish(499, cancelled_in=phase)

    def pause(self) -> None:
        if self.attempt is not None and self.attempt.connection is not None:
            self.attempt.connection.pause()

    def resume(self) -> None:
        if self.attempt is not None and self.attempt.connection is not None:
            self.attempt.connection.resume()

    def _refuse(self, refusal: Refusal) -> None:
        if self.ended:
            return
        content_type, body = self.dialect.refusal(refusal)
        headers = [(b"content-type", content_type), *self._own_headers()]
        if refusal.retry_after is not None:
            headers.append((b"retry-after", b"%d" % max(1, round(refusal.retry_after))))
        self._finish(refusal.status, code=refusal.code)
        self.sink.head(refusal.status, headers, len(body))
        self.sink.body(body)
        self.sink.end()

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run a step; what it refuses becomes the answer, and a fault of ours becomes a 500, never silence."""
        try:
            step()
        except Refusal as refusal:
            self._refuse(refusal)
        except Exception:
            log.exception("%s: a fault in the gateway", self.record.request_id)
            self._refuse(InternalError("The gateway failed on this request; its log says why."))

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"The body is larger than limits.body_bytes, {self.house.settings.limits.body_bytes}.")

    def _finish(self, status: int, *, code: str | None = None, cancelled_in: str | None = None, cut: bool = False) -> None:
        """What was taken goes back, and the fact is told. Only the first call counts."""
        if self.ended:
            return
        self.ended = True
        house = self.house
        if self.attempt is not None:
            self.attempt.cancel()
        self._leave_room(house.clock(), admitted=False)
        house.emit(self.record.finished(
            house.clock(), status, policy=house.policy_name, ask=self.ask, code=code, cancelled_in=cancelled_in, cut=cut,
            usage=self.meter.usage() if self.status else NO_USAGE, bytes_out=self.meter.bytes_out,
            hashes=house.settings.log.hashes,
        ))  # fmt: skip
