"""Answers of one choice or of several, whole and as a stream, by the example of chats."""

from typing import Any

import openai
import pytest

TURN = {"role": "user", "content": "What is a tide?"}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def spoken(events: list[Any], choices: int = 1) -> list[str]:
    """Each choice's text in a stream's events, which end with the usage and the end mark."""
    texts = [""] * choices
    for event in events[:-2]:
        texts[event["choices"][0]["index"]] += event["choices"][0]["delta"].get("content", "")
    return texts


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_ends_the_answer_before_itself(mock: Any, events_of: Any, stream: bool) -> None:
    """Even one that begins in one token and ends in another; what was generated until then is the usage."""
    worker = await mock()
    text = (await worker.chat(max_tokens=8)).json()["choices"][0]["message"]["content"]
    stop = text[10:14]
    before = text.index(stop)
    answer = await worker.chat(max_tokens=100, stop=[stop, "not in it"], **(STREAM if stream else {}))
    if stream:
        events = events_of(answer.text)
        (said,), last, usage = spoken(events), events[-3]["choices"][0], events[-2]["usage"]
    else:
        last, usage = answer.json()["choices"][0], answer.json()["usage"]
        said = last["message"]["content"]
    assert said == text[:before]
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", stop)
    assert usage["completion_tokens"] == (before + len(stop) + 3) // 4
    stats = await worker.stats()
    assert (stats["finished"], stats["aborted"], stats["running"]) == (2, 0, 0)
    assert worker.engine.cache.usage == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_several_choices_are_one_answer_and_their_prompt_counts_once(
    mock: Any, events_of: Any, stream: bool
) -> None:
    worker = await mock()
    one = (await worker.chat("What is a tide? " * 10, max_tokens=5)).json()
    answer = await worker.chat("What is a rock? " * 10, max_tokens=5, n=3, **(STREAM if stream else {}))
    if stream:
        events = events_of(answer.text)
        texts, usage = spoken(events, 3), events[-2]["usage"]
        assert events[-1] == "[DONE]"
        for index in range(3):
            of_it = [each["choices"][0] for each in events[:-2] if each["choices"][0]["index"] == index]
            assert of_it[0]["delta"]["role"] == "assistant"
            assert of_it[-1]["finish_reason"] == "length"
    else:
        texts = [choice["message"]["content"] for choice in answer.json()["choices"]]
        usage = answer.json()["usage"]
        assert [choice["index"] for choice in answer.json()["choices"]] == [0, 1, 2]
    assert len(set(texts)) == 1
    assert len(texts[0]) == 20
    assert usage["completion_tokens"] == 15
    assert usage["prompt_tokens"] == one["usage"]["prompt_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    assert (await worker.stats())["finished"] == 2


async def test_a_client_that_leaves_ends_all_its_choices(mock: Any, post: Any, eventually: Any) -> None:
    worker = await mock("--decode-tokens-per-second", "0.1")
    _, writer = await worker.connect()
    writer.write(post("/v1/chat/completions", {"messages": [TURN], "n": 3, "stream": True}))
    await eventually(lambda: worker.engine.stats().running == 3)
    writer.close()
    await eventually(lambda: worker.engine.stats().running == 0)
    assert (worker.ledger.started, worker.ledger.aborted) == (1, 1)


async def test_the_official_client_reads_log_probabilities(mock: Any) -> None:
    """In a stream they are the same, token by token, and their bytes are the answer."""
    worker = await mock()
    more = {"model": "mock-model", "messages": [TURN], "max_tokens": 4, "logprobs": True, "top_logprobs": 2}
    async with openai.AsyncOpenAI(base_url=f"{worker.url}/v1", api_key="k", max_retries=0) as client:
        whole = (await client.chat.completions.create(**more)).choices[0]
        stream = await client.chat.completions.create(**more, stream=True)
        streamed = [
            one
            async for chunk in stream
            if chunk.choices[0].logprobs is not None
            for one in chunk.choices[0].logprobs.content
        ]
    content = whole.logprobs.content
    assert [one.token for one in content] == [one.token for one in streamed]
    assert b"".join(bytes(one.bytes) for one in content).decode() == whole.message.content
    assert all(one.logprob < 0 and len(one.top_logprobs) == 2 for one in content)


async def test_log_probabilities_stop_where_the_answer_does(mock: Any) -> None:
    worker = await mock()
    text = (await worker.chat(max_tokens=8)).json()["choices"][0]["message"]["content"]
    answer = (await worker.chat(max_tokens=8, logprobs=True, stop=text[12:18])).json()["choices"][0]
    assert "".join(one["token"] for one in answer["logprobs"]["content"]) == answer["message"]["content"]


async def test_without_log_probabilities_to_give_a_wish_for_them_is_refused(
    mock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await mock()
    monkeypatch.setattr(type(worker.engine), "has_logprobs", False)
    answer = await worker.chat(logprobs=True)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "logprobs"
    assert (await worker.chat(logprobs=False)).json()["choices"][0]["logprobs"] is None
