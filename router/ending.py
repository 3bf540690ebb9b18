"""What is told of a request at its end: one fact for the log and the metrics, and the headers of a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.errors import Refusal
from router.events import Finished
from router.proxy.headers import Headers
from router.proxy.relay import NO_USAGE

if TYPE_CHECKING:
    from router.journey import Journey

MOST_MODEL = 128  # characters of a client's model name that reach a log


def finished(journey: Journey, status: int, code: str | None, cancelled_in: str | None, cut: bool) -> Finished:
    """The fact; times count from the request's first byte."""
    choice, ask, meter, started = journey.choice, journey.ask, journey.meter, journey.started
    usage = meter.usage() if journey.status else NO_USAGE
    first_byte, first_token = journey.first_byte_at, journey.first_token_at
    tokens = int(ask.prefix.tokens) if ask is not None else 0
    model = journey.model or ""
    return Finished(
        request_id=journey.request_id,
        path=journey.path,
        model=model if len(model) <= MOST_MODEL else model[:MOST_MODEL],
        status=status,
        code=code,
        tenant=journey.tenant,
        stream=journey.prompt.stream,
        worker=choice.seat.id if choice is not None else None,
        reason=choice.reason if choice is not None else None,
        policy=journey.house.policy_name if choice is not None else None,
        tries=journey.attempts,
        key_depth=ask.key.depth if ask is not None else 0,
        prompt_tokens=tokens if usage.prompt is None else usage.prompt,
        output_tokens=usage.output,
        predicted_cached_tokens=int(choice.expected) if choice is not None else 0,
        cached_tokens=usage.cached,
        usage_reported=usage.prompt is not None,
        first_byte_seconds=None if first_byte is None else first_byte - started,
        first_token_seconds=None if first_token is None else first_token - started,
        decision_seconds=journey.decision_seconds,
        seconds=journey.house.clock() - started,
        cancelled_in=cancelled_in,
        cut=cut,
        bytes_in=journey.size,
        bytes_out=meter.bytes_out,
        hashes=tuple(ask.prefix.hashes) if journey.house.logs_hashes and ask is not None else None,
    )


def refusal_headers(refusal: Refusal, content_type: bytes) -> Headers:
    headers = [(b"content-type", content_type)]
    if refusal.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, round(refusal.retry_after))))
    return headers
