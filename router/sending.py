"""A request goes out: the worker is charged, the head is written, an attempt begins."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from router import deadline
from router.attempt import Attempt
from router.core.choose import Choice
from router.ending import shown_model
from router.events import Chosen
from router.shadowing import ask_shadow

if TYPE_CHECKING:
    from router.journey import Journey


def send(journey: Journey, choice: Choice, now: float, *, fresh: bool = False, kind: type[Attempt] = Attempt) -> None:
    """Send it there; `fresh`: on a new connection."""
    ask = journey.ask
    assert ask is not None
    house, seat, intake = journey.house, choice.seat, journey.intake
    if house.shadow is not None and not journey.attempts:
        ask_shadow(house, ask, choice, journey.model, now)
    lease = house.mind.commit(ask, choice, now, streaming=journey.stream)
    attempt = journey.attempt = kind(journey, choice, lease)
    journey.choice = choice
    journey.attempts += 1
    journey.sent_at = now
    pool = house.pool(seat)
    credentials = b"" if house.checks_keys or pool.has_credentials else intake.credentials
    head = b"POST %s%s%s%s%s%sx-request-id: %s\r\ncontent-length: %d\r\n\r\n" % (
        pool.base_path, journey.target, pool.greeting, intake.lines, credentials,
        b"" if journey.deadline == inf else deadline.line(journey, now), journey.request_id.encode(),
        len(journey.body),
    )  # fmt: skip
    house.emit(Chosen(journey.request_id, seat.id, shown_model(journey.model), choice.reason, ask.key.depth,
                      int(ask.prefix.tokens), int(choice.expected), choice.passed, now))  # fmt: skip
    attempt.connection = pool.send(head, journey.body, attempt, now, fresh=fresh)
