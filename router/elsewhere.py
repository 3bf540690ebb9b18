"""When a worker failed or said no: another worker, where the law of `core/retry.py` allows, or the client is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.choose import Choice
from router.core.health import REQUEST_FAILED
from router.core.retry import may_retry, may_retry_status
from router.ending import passed_on
from router.errors import AttemptError, LocalTrouble, NotSent, StaleConnection, Unreachable, WorkerFailed
from router.events import AttemptFailed

if TYPE_CHECKING:
    from router.attempt import Attempt, Held
    from router.journey import Journey


def failed(journey: Journey, failure: AttemptError, attempt: Attempt) -> None:
    """An attempt failed. Once the client has the status, another may go on with its stream, or it is cut too."""
    choice = attempt.choice
    if attempt.answered:
        if journey.followed is None or not journey.go_on(failure, attempt):
            blame(journey, failure, choice, retried=False)
            cut(journey)
    elif isinstance(failure, StaleConnection) and not journey.resent and journey.counted < journey.house.max_tries:
        journey.resent = True
        journey.counted += 1  # a request that kills its worker at once looks the same, and must not walk the fleet
        journey.house.emit(AttemptFailed(choice.seat.id, failure.kind, True))  # the same choice, not a further one
        journey.guarded(lambda: journey.send(choice, journey.house.clock(), fresh=True))
    else:
        journey.counted += failure.counts
        journey.tried += (choice.seat.id,)
        # A connection that broke under the request may mean that it ran: nowhere else, whatever sending again brought.
        allowed = not journey.resent and may_retry(
            failure, counted=journey.counted, max_tries=journey.house.max_tries, answered=False
        )
        blame(journey, failure, choice, retried=allowed and journey.some_left())
        if allowed:
            journey.failure = failure
            _go_on(journey)
        else:
            # What broke first decides what the client is told: that nobody could be reached later is no news of it.
            answer = WorkerFailed if journey.resent and failure.certainly_not_run else failure.answer
            journey.refuse(answer(f"The worker failed ({failure.kind}): {failure}."))


def turned_away(journey: Journey, held: Held) -> None:
    """The worker said 503 or 429, and another may be asked."""
    journey.held = held
    journey.counted += 1
    journey.tried += (held.choice.seat.id,)
    tell(journey, held.choice, f"status_{held.status}", retried=True)
    _go_on(journey)


def may_ask_another(journey: Journey, status: int) -> bool:
    """The law allows it, and some other worker would take the request now."""
    house, ask, choice = journey.house, journey.ask, journey.choice
    if ask is None or choice is None:
        return False
    if not may_retry_status(status, counted=journey.counted + 1, max_tries=house.max_tries):
        return False
    tried = (*journey.tried, choice.seat.id)
    return house.mind.choose(ask, journey.model, tried, house.clock()) is not None


def answer_held(journey: Journey, held: Held) -> None:
    """All others said the same or were not to be reached: the last such answer is passed on as it came."""
    journey.choice = held.choice
    journey.first_byte_at = journey.house.clock()
    journey.finish(held.status)
    sink = journey.sink
    sink.head(held.status, passed_on(journey, held.headers), held.size)
    for piece in held.pieces:
        sink.body(piece)
    sink.end()


def cut(journey: Journey) -> None:
    """The client has a part of the answer, and must not take it for the whole."""
    journey.finish(journey.status, cut=True)
    journey.sink.abort()


def _go_on(journey: Journey) -> None:
    journey.resent = False
    journey.guarded(journey.try_one)


def tell(journey: Journey, choice: Choice, kind: str, *, retried: bool) -> None:
    expected = int(choice.expected)
    journey.house.emit(AttemptFailed(choice.seat.id, kind, retried, choice.reason, journey.model or "", expected))


def blame(journey: Journey, failure: AttemptError, choice: Choice, *, retried: bool) -> None:
    """Tell of the failure, and let it speak against the worker where it does."""
    tell(journey, choice, failure.kind, retried=retried)
    if isinstance(failure, Unreachable):
        journey.house.mind.lost(choice.seat)
    if not isinstance(failure, (LocalTrouble, NotSent)):
        if journey.ask is not None:
            journey.house.mind.failed(journey.ask, choice.seat, journey.house.clock())
        journey.house.signal(choice.seat, REQUEST_FAILED, failure.kind)
