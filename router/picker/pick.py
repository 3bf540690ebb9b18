"""A request's story when Envoy carries its bytes: read, refused, queued and placed as the gateway does it.

begin, feed, complete        the request as far as Envoy shows it
send                         the worker is charged, and Envoy told where to go
head, read, over             what Envoy tells of the answer; every end gives the lease back, once
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from router.attempt import Attempt
from router.contracts import Place
from router.core.choose import Choice, choose
from router.core.fleet import Seat
from router.core.health import DRAINING, REQUEST_FAILED
from router.core.retry import BACK_PRESSURE, is_fault
from router.elsewhere import blame
from router.ending import shown_model, too_large
from router.errors import NoReadyWorker, Refusal
from router.events import Chosen
from router.house import House
from router.journey import Journey
from router.picker.messages import Answer, Order
from router.picker.orders import alike, endpoint_of, order_for
from router.picker.outcome import VIA_UPSTREAM, PassedOver, failure_of
from router.prompt import NOTHING
from router.proxy.headers import Headers, retry_after
from router.shadowing import ask_shadow
from router.types import Reason

if TYPE_CHECKING:
    from router.picker.talk import Talk


class Pick(Journey):
    """Its attempt has no connection, since Envoy has it, and only holds the lease.

    plain: what it asks for has no prompt, or none that is read: the least loaded worker will do
    subset: the endpoints that it may go to, None for all
    """

    seats: tuple[Seat, ...] = ()  # that Envoy was told of, the one chosen first
    sees_body: bool = False
    whole: bool = False
    unheld: bool = False
    given_body: bytes = b""

    def __init__(
        self, house: House, place: Place, target: bytes, headers: Headers, talk: Talk,
        *, plain: bool = False, subset: frozenset[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(house, place, target, headers, talk)
        self.talk, self.plain, self.subset = talk, plain, subset
        self.given, self.given_target = headers, target

    # The request.

    def complete(self) -> None:
        if self.plain and not self.ended:
            self.whole_at = self.house.clock()
            self.body = self.given_body
            self.guarded(self._place)
        elif not self.ended:
            self.given_body = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
            self.parts = [self.given_body]
            super().complete()

    def passes(self, data: bytes) -> None:
        """A piece of a body that nobody reads here."""
        self.size += len(data)
        if self.size > self.house.most_body_bytes:
            self.refuse(too_large(self.house))

    def _place(self) -> None:
        """Nothing is read of it."""
        self.ask = self.house.mind.weigh(NOTHING, self.intake)
        if self.house.pumping:
            self.house.pump()
        self.try_one()

    def choose(self, now: float) -> Choice | None:
        if self.subset is None:
            return super().choose(now)
        house, ask = self.house, self.ask
        assert ask is not None
        if house.most is not None and house.is_full():
            return None
        return choose(house.mind.policy, ask, self._allowed(), house.fleet.seats, self.tried, now)

    def some_left(self) -> bool:
        return super().some_left() if self.subset is None else bool(self._allowed())

    def _allowed(self) -> list[Seat]:
        house, subset = self.house, self.subset or frozenset()
        return [seat for seat in house.fleet.candidates(self.model) if endpoint_of(house, seat) in subset]

    def send(self, choice: Choice, now: float, *, fresh: bool = False) -> None:
        """Tell Envoy to go there."""
        ask, house, seat = self.ask, self.house, choice.seat
        assert ask is not None
        if house.shadow is not None:
            ask_shadow(house, ask, choice, self.model, now)
        seats = self.seats = (seat, *self._fallbacks(choice, now))
        self._charge(choice, now)
        order = order_for(self, seats, now)
        self._answered(order)

    def _fallbacks(self, choice: Choice, now: float) -> Iterator[Seat]:
        """Where it would go next, were those before not there."""
        house, ask = self.house, self.ask
        assert ask is not None
        seats = house.fleet.candidates(self.model) if self.subset is None else self._allowed()
        tried = (*self.tried, choice.seat.id)
        for _ in range(min(house.settings.picker.fallbacks, len(seats) - 1)):
            further = choose(house.mind.policy, ask, seats, house.fleet.seats, tried, now)
            if further is None:
                return
            tried += (further.seat.id,)
            if alike(house, choice.seat, further.seat):
                yield further.seat

    def _charge(self, choice: Choice, now: float) -> None:
        ask, house, seat = self.ask, self.house, choice.seat
        assert ask is not None
        lease = house.mind.commit(ask, choice, now, streaming=self.stream)
        self.attempt = Attempt(self, choice, lease)
        self.choice = choice
        self.attempts += 1
        self.sent_at = now
        house.emit(Chosen(self.request_id, seat.id, shown_model(self.model), choice.reason, ask.key.depth,
                          int(ask.prefix.tokens), int(choice.expected), choice.passed, now))  # fmt: skip

    def _answered(self, order: Order) -> None:
        """From here on the time is Envoy's to watch."""
        body = self.body
        if self.deadline != inf:
            self.house.sweep.forget(self)
            self.deadline = inf
        self.let_go()
        self.talk.picked(order, body)

    # No worker is known to be well.

    def refuse(self, refusal: Refusal) -> None:
        open_ = self.house.settings.picker.fail_open and isinstance(refusal, NoReadyWorker)
        if open_ and not self.ended and self.attempt is None and not self.unheld:
            self.unheld = True
            self.guarded(self._anyway)
        else:
            super().refuse(refusal)

    def _anyway(self) -> None:
        """To its home on the ring, well or not; where there is none, wherever Envoy likes."""
        house, ask = self.house, self.ask
        serving = {
            seat.id: seat
            for seat in house.fleet.seats.values()
            if seat.serves(self.model) and seat.health.state is not DRAINING
            and (self.subset is None or endpoint_of(house, seat) in self.subset)
        }  # fmt: skip
        home = None if ask is None or not serving else house.fleet.ring.nearest(ask.key.value, serving)
        if home is not None:
            self.send(Choice(serving[home], Reason.HOME, 0.0, ()), house.clock())
        elif self.subset is None:
            self._answered(Order(body=None if self.body is self.given_body else self.body))
        else:
            super().refuse(house.none_ready())

    # The answer.

    def head(self, answer: Answer, *, sees_body: bool) -> None:
        """A response's head came, a worker's or Envoy's own."""
        if self.ended:
            return
        house, now = self.house, self.house.clock()
        self.sees_body, self.status, self.first_byte_at = sees_body, answer.status, now
        self.meter.begin(answer.headers)
        self._served_by(answer.served, now)
        attempt = self.attempt
        if attempt is None or self.choice is None:
            return
        attempt.answered = True
        seat = self.choice.seat
        failure = failure_of(answer.details)
        if failure is not None:
            blame(self, failure, self.choice, retried=False)
        elif answer.details in ("", VIA_UPSTREAM):
            if answer.status in BACK_PRESSURE:
                seat.health.press(now, retry_after(answer.headers))
            elif is_fault(answer.status):
                if self.ask is not None:
                    house.mind.failed(self.ask, seat, now)
                house.signal(seat, REQUEST_FAILED, f"status_{answer.status}")
        if not self.meter.streaming:
            attempt.lease.first_token(now)
        elif not sees_body:  # the head stands for the first token, but nothing is learnt from it
            attempt.lease.first_token(now)
            if self.ask is not None:
                self.ask.lease = None

    def _served_by(self, served: str, now: float) -> None:
        """Envoy may have gone on to a fallback: the lease goes over to that worker."""
        house, attempt = self.house, self.attempt
        if not served or attempt is None or self.choice is None or served == endpoint_of(house, self.seats[0]):
            return
        at = next((at for at, seat in enumerate(self.seats) if endpoint_of(house, seat) == served), None)
        if at is None:
            return
        attempt.cancel()
        for seat in self.seats[:at]:
            choice = self.choice if seat is self.choice.seat else Choice(seat, Reason.RETRY, 0.0, ())
            blame(self, PassedOver("Envoy went on to the next"), choice, retried=True)
        seat, ask = self.seats[at], self.ask
        assert ask is not None
        expected = ask.held.get(seat.id, 0) / ask.prefix.bytes_a_token
        self._charge(Choice(seat, Reason.RETRY, expected, ()), now)

    def read(self, data: bytes) -> None:
        """A piece of the answer passes by."""
        if not self.ended and self.meter.read([data]) and self.attempt is not None:
            now = self.house.clock()
            self.attempt.lease.first_token(now)
            self.first_token(now)

    def over(self) -> None:
        """Envoy is done with it, or whoever asked is gone: the stream has ended."""
        if self.ended:
            return
        if not self.status or (self.sees_body and not self.whole):
            self.cancel()
        elif self.attempt is None or self.choice is None:
            self.finish(self.status)
        else:
            self.attempt.cancel()
            self.done(self.choice.seat)
