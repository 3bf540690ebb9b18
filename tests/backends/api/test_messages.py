"""Anthropic's messages."""

import json
from typing import Any

import pytest

BODY = {"model": "mock-model", "max_tokens": 3, "messages": [{"role": "user", "content": "What is a tide? " * 20}]}


def named_events(text: str) -> list[tuple[str, Any]]:
    blocks = [block.split("\n") for block in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


async def test_a_whole_message_has_text_reason_and_usage(mock: Any) -> None:
    worker = await mock()
    answer = (await worker.ask("/v1/messages", BODY)).json()
    assert answer["type"] == "message"
    assert len(answer["content"][0]["text"]) == 12
    assert answer["stop_reason"] == "max_tokens"
    assert answer["usage"]["output_tokens"] == 3


async def test_what_was_cached_is_counted_apart(mock: Any) -> None:
    """Only the sum is the whole prompt."""
    worker = await mock()
    first = (await worker.ask("/v1/messages", BODY)).json()["usage"]
    second = (await worker.ask("/v1/messages", BODY)).json()["usage"]
    assert first["cache_read_input_tokens"] == 0
    assert second["cache_read_input_tokens"] > 0
    assert second["cache_read_input_tokens"] + second["input_tokens"] == first["input_tokens"]


async def test_a_stream_goes_from_message_start_to_message_stop(mock: Any) -> None:
    worker = await mock()
    await worker.ask("/v1/messages", BODY)
    events = named_events((await worker.ask("/v1/messages", {**BODY, "stream": True})).text)
    assert [name for name, _ in events] == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 3,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert all(value["type"] == name for name, value in events)
    assert events[0][1]["message"]["usage"]["cache_read_input_tokens"] > 0
    assert events[-2][1]["usage"]["output_tokens"] == 3
    assert events[-2][1]["delta"]["stop_reason"] == "max_tokens"


async def test_system_and_tools_are_part_of_the_prompt(mock: Any) -> None:
    worker = await mock()
    variants = ({}, {"system": "Be brief."}, {"system": [{"type": "text", "text": "Be brief."}]}, {"tools": [{}]})
    answers = [await worker.ask("/v1/messages/count_tokens", {**BODY, **more}) for more in variants]
    counts = [answer.json()["input_tokens"] for answer in answers]
    assert counts[0] < counts[1] == counts[2]
    assert counts[0] < counts[3]


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({**BODY, "model": "other"}, 404, "not_found_error"),
        ({**BODY, "messages": []}, 400, "invalid_request_error"),
        ({"messages": BODY["messages"]}, 400, "invalid_request_error"),
        ({"max_tokens": 1}, 400, "invalid_request_error"),
    ],
)
async def test_errors_have_anthropics_form(mock: Any, body: Any, status: int, kind: str) -> None:
    worker = await mock()
    answer = await worker.ask("/v1/messages", body)
    assert answer.status_code == status
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == kind


async def test_anthropics_key_header_is_a_key_too(mock: Any) -> None:
    worker = await mock("--api-key", "k")
    assert (await worker.ask("/v1/messages", BODY)).status_code == 401
    assert (await worker.ask("/v1/messages", BODY, headers={"x-api-key": "k"})).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_sequence_ends_the_message_and_is_named(mock: Any, stream: bool) -> None:
    worker = await mock()
    text = (await worker.ask("/v1/messages", {**BODY, "max_tokens": 8})).json()["content"][0]["text"]
    stop = text[10:14]
    body = {**BODY, "max_tokens": 100, "stop_sequences": ["not in it", stop], "stream": stream}
    answer = await worker.ask("/v1/messages", body)
    if stream:
        events = named_events(answer.text)
        said = "".join(value["delta"]["text"] for name, value in events if name == "content_block_delta")
        end, usage = events[-2][1]["delta"], events[-2][1]["usage"]
    else:
        said, end, usage = answer.json()["content"][0]["text"], answer.json(), answer.json()["usage"]
    assert said == text[: text.index(stop)]
    assert (end["stop_reason"], end["stop_sequence"]) == ("stop_sequence", stop)
    assert usage["output_tokens"] == (text.index(stop) + len(stop) + 3) // 4


@pytest.mark.parametrize(
    "fields", [{"temperature": 3}, {"top_p": 0}, {"stop_sequences": [""]}, {"stop_sequences": "a"}]
)
async def test_what_cannot_be_sampled_is_a_400_here_too(mock: Any, fields: Any) -> None:
    worker = await mock()
    answer = await worker.ask("/v1/messages", {**BODY, **fields})
    assert answer.status_code == 400
    assert next(iter(fields)) in answer.json()["error"]["message"]
