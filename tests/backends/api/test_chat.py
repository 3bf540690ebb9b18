"""Chat completions, by hand and by the official client."""

from typing import Any

import openai
import pytest

MESSAGES = [{"role": "system", "content": "Be brief. " * 40}, {"role": "user", "content": "What is a tide?"}]


def client_of(worker: Any, **more: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{worker.url}/v1", api_key="k", max_retries=0, **more)


async def test_the_official_client_reads_an_answer(mock: Any) -> None:
    worker = await mock()
    async with client_of(worker) as client:
        answer = await client.chat.completions.create(model="mock-model", messages=MESSAGES, max_tokens=5)
    assert len(answer.choices[0].message.content) == 20
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 5
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 5
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_the_official_client_reads_a_stream(mock: Any) -> None:
    """Role first, a token an event, the reason, and the usage where it was asked for."""
    worker = await mock()
    async with client_of(worker) as client:
        stream = await client.chat.completions.create(
            model="mock-model", messages=MESSAGES, max_tokens=4, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content == ""
    assert all(len(chunk.choices[0].delta.content) == 4 for chunk in chunks[1:5])
    assert chunks[5].choices[0].finish_reason == "length"
    assert chunks[6].choices == []
    assert chunks[6].usage.completion_tokens == 4
    assert len(chunks) == 7


async def test_a_stream_says_what_the_whole_answer_says(mock: Any, events_of: Any) -> None:
    worker = await mock()
    whole = (await worker.ask("/v1/chat/completions", {"messages": MESSAGES})).json()
    stream = await worker.ask("/v1/chat/completions", {"messages": MESSAGES, "stream": True})
    events = events_of(stream.text)
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert events[-1] == "[DONE]"
    assert all("usage" not in event for event in events[:-1])
    said = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
    assert said == whole["choices"][0]["message"]["content"]
    assert whole["choices"][0]["finish_reason"] == "stop"


async def test_the_next_turn_hits_prompt_and_answer(mock: Any) -> None:
    """All whole blocks of the first turn but the one with the last token, generated ones too."""
    worker = await mock()
    first = (await worker.ask("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 40})).json()
    turn = first["choices"][0]["message"]["content"]
    more = [*MESSAGES, {"role": "assistant", "content": turn}, {"role": "user", "content": "More."}]
    second = (await worker.ask("/v1/chat/completions", {"messages": more})).json()
    known = first["usage"]["total_tokens"] - 1
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == known // 16 * 16


async def test_tools_come_first_in_the_prompt(mock: Any) -> None:
    """Other tools leave nothing to share; the same tools with another system text share them."""
    worker = await mock()
    tools = [{"type": "function", "function": {"name": "f" * 200}}]
    for system, wanted in (("A", tools), ("B", tools), ("A", [{**tools[0], "type": "other"}])):
        body = {"messages": [{"role": "system", "content": system}], "tools": wanted}
        answer = (await worker.ask("/v1/chat/completions", body)).json()
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert bool(cached) == (system == "B")


async def test_the_newer_name_of_the_limit_counts_too(mock: Any) -> None:
    worker = await mock()
    answer = (await worker.chat(max_completion_tokens=3, max_tokens=9, unknown_field={"a": [1]})).json()
    assert answer["usage"]["completion_tokens"] == 3


async def test_the_callers_request_id_is_in_the_answers_id(mock: Any) -> None:
    worker = await mock()
    answer = await worker.ask("/v1/chat/completions", {"messages": MESSAGES}, headers={"x-request-id": "abc"})
    assert answer.json()["id"] == "chatcmpl-abc"


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"messages": MESSAGES, "model": "other"}, 404, "NotFoundError"),
        ({"messages": []}, 400, "BadRequestError"),
        ({"messages": "text"}, 400, "BadRequestError"),
        ({"messages": [{"content": "x"}]}, 400, "BadRequestError"),
        ({"messages": MESSAGES, "max_tokens": 0}, 400, "BadRequestError"),
        ({"messages": MESSAGES, "max_tokens": 200_000}, 400, "BadRequestError"),
        ({"messages": MESSAGES, "stream_options": {"include_usage": True}}, 400, "BadRequestError"),
        ([], 400, "BadRequestError"),
        (None, 400, "BadRequestError"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_vllm_refuses_is_refused_before_a_stream_begins(
    mock: Any, body: Any, status: int, kind: str, stream: bool
) -> None:
    worker = await mock()
    if stream and isinstance(body, dict) and "stream_options" not in body:
        body = {**body, "stream": True}
    answer = await worker.ask("/v1/chat/completions", body)
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == kind
    assert answer.json()["error"]["code"] == status
    assert worker.ledger.started == 0


async def test_the_official_client_raises_the_right_errors(mock: Any) -> None:
    worker = await mock("--api-key", "k")
    async with client_of(worker) as client:
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="other", messages=MESSAGES)
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model="mock-model", messages=[])
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="wrong").models.list()


async def test_content_parts_null_content_and_odd_text_are_taken(mock: Any) -> None:
    """Image parts, tool calls without content, and lone surrogates: a real worker takes them all."""
    worker = await mock()
    body = (
        b'{"messages": [{"role": "user", "content": [{"type": "text", "text": "a\\ud800"}, {"type": "image_url",'
        b' "image_url": {"url": "data:x"}}]}, {"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]}]}'
    )
    answer = await worker.http.post("/v1/chat/completions", content=body)
    assert answer.status_code == 200


@pytest.mark.parametrize("said", [0, 7, 16])
async def test_an_answer_that_was_broken_off_goes_on(mock: Any, said: int) -> None:
    worker = await mock()
    whole = (await worker.ask("/v1/chat/completions", {"messages": MESSAGES})).json()["choices"][0]["message"]
    begun = {"role": "assistant", "content": whole["content"][: 4 * said]}
    body = {"messages": [*MESSAGES, begun], "continue_final_message": True, "add_generation_prompt": False}
    rest = (await worker.ask("/v1/chat/completions", body)).json()
    assert begun["content"] + rest["choices"][0]["message"]["content"] == whole["content"]
    assert rest["choices"][0]["finish_reason"] == "stop"


async def test_an_answer_is_gone_on_with_or_opened_and_not_both(mock: Any) -> None:
    worker = await mock()
    got = await worker.ask("/v1/chat/completions", {"messages": MESSAGES, "continue_final_message": True})
    assert got.status_code == 400
    assert got.json()["error"]["param"] == "continue_final_message"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 1.5}, "n"),
        ({"stop": ""}, "stop"),
        ({"stop": [1]}, "stop[0]"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"seed": 2**70}, "seed"),
        ({"logprobs": 3}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_tokens"),
    ],
)
async def test_what_cannot_be_sampled_is_a_400_that_names_the_field(mock: Any, fields: Any, param: str) -> None:
    worker = await mock()
    answer = await worker.chat(**fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert worker.ledger.started == 0


async def test_null_is_as_good_as_nothing(mock: Any) -> None:
    worker = await mock()
    names = ("temperature", "top_p", "n", "stop", "seed", "logprobs", "top_logprobs", "max_tokens", "stream")
    assert (await worker.chat(**dict.fromkeys(names))).json() | {"id": 0} == (await worker.chat()).json() | {"id": 0}
