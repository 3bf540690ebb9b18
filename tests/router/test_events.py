"""Events are small frozen facts, none of which can hold a prompt or a key."""

from typing import get_args

import msgspec
import pytest

from router.events import Event, Finished

KINDS = get_args(Event)


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_is_frozen_and_says_what_it_states(kind: type[msgspec.Struct]) -> None:
    assert kind.__struct_config__.frozen
    assert kind.__doc__
    assert kind.__doc__.strip().endswith(".")


@pytest.mark.parametrize("kind", KINDS)
def test_no_event_has_room_for_prompt_text_or_keys(kind: type[msgspec.Struct]) -> None:
    assert not {"text", "body", "prompt", "messages", "api_key", "headers"} & set(kind.__struct_fields__)


def test_what_never_came_is_none_and_not_zero() -> None:
    over = Finished(request_id="r", path="/v1/completions", model="m", status=499)
    assert over.first_byte_seconds is None
    assert over.first_token_seconds is None
    assert over.output_tokens is None
    assert over.cached_tokens is None


def test_the_facts_of_the_house_are_these() -> None:
    assert {kind.__name__ for kind in KINDS} >= {
        "Chosen", "AttemptFailed", "FirstToken", "Finished", "WorkerChanged",
    }  # fmt: skip
