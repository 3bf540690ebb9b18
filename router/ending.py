"""What is told of a request at its end: one fact for the log and the metrics, and the headers of a refusal."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from router.accounting import settle
from router.errors import Refusal, RequestTooLarge
from router.events import Finished
from router.proxy.credentials import veiled, without_userinfo
from router.proxy.headers import Headers, to_client
from router.proxy.relay import NO_USAGE

if TYPE_CHECKING:
    from router.house import House
    from router.journey import Journey

MOST_MODEL: Final = 128  # characters of a client's model name that reach a log


def finished(journey: Journey, status: int, code: str | None, cancelled_in: str | None, cut: bool) -> Finished:
    """The fact, and the mind learns from it. Times count from the request's head.

    Positional, in the order of the event's fields: half the cost.
    """
    choice, ask, meter, started = journey.choice, journey.ask, journey.meter, journey.started
    usage = meter.usage() if journey.status else NO_USAGE
    first_byte, first_token = journey.first_byte_at, journey.first_token_at
    prompt = usage.prompt
    worker: str | None = None
    reason: str | None = None
    policy: str | None = None
    expected = chance = 0.0
    house = journey.house
    now = house.clock()
    if choice is not None:
        worker, reason, policy, expected = choice.seat.id, choice.reason, house.policy_name, choice.expected
        if ask is not None:
            if 0 < status < 400:
                house.mind.learn(ask, choice, usage, now)
            if ask.held:
                chance = sum(ask.held.values()) / ask.prefix.bytes_a_token / max(1, len(house.fleet.seats))
    if journey.account is not None:
        settle(journey, prompt, now)
    if prompt is None:
        prompt = int(ask.prefix.tokens) if ask is not None else 0
    return Finished(
        journey.request_id,
        journey.path,
        shown_model(journey.model),
        status,
        code,
        journey.tenant,
        journey.stream,
        worker,
        reason,
        policy,
        journey.attempts,
        ask.key.depth if ask is not None else 0,
        prompt,
        usage.output,
        int(expected),
        usage.cached,
        usage.prompt is not None,
        int(chance),
        None if first_byte is None else first_byte - started,
        None if first_token is None else first_token - started,
        journey.decision_seconds,
        now - started,
        cancelled_in,
        cut,
        journey.size,
        meter.bytes_out,
        tuple(ask.prefix.hashes) if house.logs_hashes and ask is not None else None,
        ask.length if house.logs_hashes and ask is not None else 0,
        journey.client,
        journey.resumed,
    )


def phase(journey: Journey) -> str:
    """How far it is."""
    return "queued" if journey.ticket else journey.attempt.phase if journey.attempt else "receiving"


def shown_model(model: str | None) -> str:
    """A client's name for a model as a log or a page may have it: short, and valid Unicode."""
    if not model or (len(model) <= MOST_MODEL and model.isascii()):
        return model or ""
    return model[:MOST_MODEL].encode("utf-8", "replace").decode()


def refusal_headers(refusal: Refusal, content_type: bytes) -> Headers:
    headers = [(b"content-type", content_type)]
    if refusal.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, ceil(refusal.retry_after))))
    return headers


def passed_on(journey: Journey, headers: Headers) -> Headers:
    """An answer's headers for the client: the worker's, without what only the gateway may see, and our own."""
    passed = to_client(headers)
    choice = journey.choice
    if choice is not None:
        worker = choice.seat.worker
        if worker.api_key or worker.address.credentials:
            passed = veiled(passed, worker)
    if journey.status != 200:
        passed = without_userinfo(passed)
    return passed + journey.own_headers()


def too_large(house: House) -> RequestTooLarge:
    return RequestTooLarge(f"The body is larger than limits.body_bytes, {house.most_body_bytes}.")
