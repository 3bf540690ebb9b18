"""What stands between a whole request and the choice of its worker: it is read, and may be refused for who asks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from router.errors import InvalidJson
from router.prompt import NOTHING, Prompt

if TYPE_CHECKING:
    from router.journey import Journey

log = logging.getLogger("router")


def admit(journey: Journey) -> None:
    """Read the body and hash its prompt. Raises what the client must be told."""
    house = journey.house
    prompt = _read(journey)
    journey.stream = prompt.stream
    journey.model = house.model(prompt)
    journey.ask = house.mind.weigh(prompt, journey.intake, journey.body, native=journey.dialect.native)


def _read(journey: Journey) -> Prompt:
    try:
        return journey.dialect.read(journey.path, journey.body)
    except InvalidJson:
        raise
    except Exception as wrong:  # extraction never fails a request: the worker may know better
        log.warning("%s: the prompt could not be read (%s)", journey.request_id, type(wrong).__name__)
        return NOTHING
