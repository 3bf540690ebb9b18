"""What is read of bodies and of usage: the fields that say something, and nothing else is kept or judged."""

import json
from typing import Any

import msgspec
import pytest

from router.dialects._shapes import read_chat, read_chunk, read_plain, read_usage


def test_a_chat_is_its_turns_and_the_fields_that_say_something() -> None:
    body = {
        "messages": [{"role": "user", "content": "hi", "name": "n", "extra": [1]}], "model": "m", "stream": True,
        "tools": [{"type": "function"}], "temperature": 0.5, "cache_salt": "s", "priority": 3, "prompt_cache_key": "k",
    }  # fmt: skip
    chat = read_chat(json.dumps(body).encode())
    (message,) = chat.messages
    assert (message.role, message.content, message.name, message.tool_calls) == ("user", "hi", "n", None)
    told = chat.model, chat.stream, chat.tools, chat.cache_salt, chat.priority, chat.prompt_cache_key
    assert told == ("m", True, [{"type": "function"}], "s", 3, "k")


@pytest.mark.parametrize("field", ["prompt", "input", "query", "text_1"])
@pytest.mark.parametrize("value", ["hi", ["a", "b"], [1, 2], [[1], [2]], None, {"odd": 1}])
def test_a_plain_prompt_may_have_any_shape(field: str, value: Any) -> None:
    assert getattr(read_plain(json.dumps({field: value}).encode()), field) == value


@pytest.mark.parametrize("body", [b"[]", b'{"messages": 7}', b'{"messages": [7]}', b"null"])
def test_a_chat_of_another_shape_is_refused_here_and_read_leniently_elsewhere(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        read_chat(body)


def test_a_chunk_is_its_choices() -> None:
    (choice,) = read_chunk(b'{"id": "x", "choices": [{"index": 0, "delta": {"content": "t"}}]}').choices
    assert choice.delta is not None
    assert (choice.delta.content, choice.text) == ("t", None)


def test_usage_is_read_in_both_vendors_names() -> None:
    ours = read_usage(b'{"usage": {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 5}}}').usage
    theirs = read_usage(b'{"usage": {"input_tokens": 2, "cache_read_input_tokens": 5}}').usage
    assert ours is not None
    assert ours.prompt_tokens_details is not None
    assert theirs is not None
    assert (ours.prompt_tokens, ours.prompt_tokens_details.cached_tokens) == (7, 5)
    assert (theirs.input_tokens, theirs.cache_read_input_tokens) == (2, 5)


def test_a_negative_count_is_no_count() -> None:
    with pytest.raises(msgspec.ValidationError):
        read_usage(b'{"usage": {"prompt_tokens": -1}}')
