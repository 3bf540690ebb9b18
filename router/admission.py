"""What stands between a whole request and the choice of its worker: it is read, and may be refused for who asks."""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import TYPE_CHECKING, Final

from router.accounting import count_prompt, count_request
from router.core.queue import MOST_PRIORITY
from router.core.salt import FIELD, salt
from router.dialects._rewrite import with_value
from router.errors import InvalidJson, InvalidRequest, RequestTooLarge
from router.large import LARGE, parts_of
from router.prompt import NOTHING, Prompt
from router.proxy.credentials import use_up
from router.proxy.headers import Headers, request_id

if TYPE_CHECKING:
    from router.journey import Journey

log = logging.getLogger("router")

WHOLE: Final = re.compile(rb"[+-]?[0-9]{1,18}")

UNSALTED: Final = frozenset(("/tokenize", "/detokenize"))  # they touch no cache, and refuse fields they do not know


def admit(journey: Journey) -> None:
    """Read the body and hash its prompt. Raises what the client must be told."""
    house = journey.house
    if len(journey.body) >= LARGE and parts_of(journey.body) > house.most_body_parts:
        raise RequestTooLarge(f"The body has more objects and lists than limits.body_parts, {house.most_body_parts}.")
    account = count_request(journey) if house.counts_callers else None
    prompt = _read(journey)
    if journey.intake.tenant is not None and journey.path not in UNSALTED:
        _salt(journey, journey.intake.tenant, prompt)
    journey.stream = prompt.stream
    journey.model = house.model(prompt)
    journey.ask = house.mind.weigh(prompt, journey.intake, journey.body, native=journey.dialect.native)
    if house.hears_priorities:
        journey.priority = _priority(journey, prompt)
    if account is not None:
        count_prompt(journey, account)


def let_in(journey: Journey, headers: Headers) -> None:
    """Whose key it shows. Raises InvalidApiKey."""
    key = journey.key = journey.house.keys.find(headers)
    journey.tenant = key.tenant if key is not None else None
    use_up_key(journey)
    if journey.house.salts_tenants:
        journey.intake.tenant = journey.tenant


def use_up_key(journey: Journey) -> None:
    """The caller was let in by its key: no form of it goes on to a worker, nor into a log as the request's id."""
    intake = journey.intake
    given = intake.given_id
    journey.target = use_up(intake, journey.target)
    intake.credentials = b""  # nor later, should a reload do away with keys in the meantime
    if intake.given_id is not given:
        journey.request_id = request_id(None)


def _salt(journey: Journey, tenant: str, prompt: Prompt) -> None:
    """The tenant's salt goes into the body in place of the client's own, so that engines keep tenants apart too."""
    known_json = bool(prompt.text)  # its dialect made sense of it
    try:
        journey.body = with_value(journey.body, FIELD, partial(salt, tenant), checked=known_json)
    except (ValueError, RecursionError):
        raise InvalidJson("The request body could not be read exactly enough to be given its tenant's salt.") from None


def _priority(journey: Journey, prompt: Prompt) -> int:
    """As vLLM has it: lower is served earlier. Only callers that may set one are heard."""
    key, given = journey.key, journey.intake.priority
    if not (journey.house.open_priorities if key is None else key.priority):
        return 0
    if given is not None:
        if not WHOLE.fullmatch(given):
            raise InvalidRequest("x-priority: expected a whole number; lower is served earlier.", param="x-priority")
        asked = int(given)
    else:
        asked = prompt.priority or 0
    return max(-MOST_PRIORITY, min(asked, MOST_PRIORITY))


def _read(journey: Journey) -> Prompt:
    try:
        return journey.dialect.read(journey.path, journey.body)
    except InvalidJson:
        raise
    except Exception as wrong:  # extraction never fails a request: the worker may know better
        log.warning("%s: the prompt could not be read (%s)", journey.request_id, type(wrong).__name__)
        return NOTHING
