"""Text completions."""

from typing import Any

import openai
import pytest


@pytest.mark.parametrize(
    ("prompt", "choices"), [("a tide", 1), (["a", "b"], 2), ([101, 7, 8, 9], 1), ([[1, 2], [3, 4], [5]], 3)]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_all_four_shapes_of_prompt_are_answered(
    mock: Any, events_of: Any, prompt: Any, choices: int, stream: bool
) -> None:
    """Streamed and whole, with the same texts under the same indexes."""
    worker = await mock()
    body = {"model": "mock-model", "prompt": prompt, "max_tokens": 3}
    whole = (await worker.ask("/v1/completions", body)).json()
    assert [choice["index"] for choice in whole["choices"]] == list(range(choices))
    assert whole["usage"]["completion_tokens"] == 3 * choices
    if stream:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        events = events_of((await worker.ask("/v1/completions", {**body, **options})).text)
        texts = [""] * choices
        for event in events[:-2]:
            texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
        assert texts == [choice["text"] for choice in whole["choices"]]
        assert events[-2]["choices"] == []
        assert events[-2]["usage"]["completion_tokens"] == 3 * choices
        assert events[-1] == "[DONE]"


@pytest.mark.parametrize("prompt", [None, "", [], [[]], [""], [-1], [1.5], [True], {"a": 1}, [["a"]], [2**70]])
async def test_what_is_no_prompt_is_a_400(mock: Any, prompt: Any) -> None:
    worker = await mock()
    answer = await worker.ask("/v1/completions", {"prompt": prompt})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt"


async def test_the_official_client_reads_both_forms(mock: Any) -> None:
    worker = await mock()
    async with openai.AsyncOpenAI(base_url=f"{worker.url}/v1", api_key="k", max_retries=0) as client:
        whole = await client.completions.create(model="mock-model", prompt="a tide", max_tokens=4)
        stream = await client.completions.create(model="mock-model", prompt="a tide", max_tokens=4, stream=True)
        text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == whole.choices[0].text
    assert whole.usage.completion_tokens == 4


async def test_prompt_plus_answer_as_the_next_prompt_hits_the_answer(mock: Any) -> None:
    worker = await mock("--block-tokens", "4")
    first = (await worker.ask("/v1/completions", {"prompt": "abc " * 8, "max_tokens": 9})).json()
    again = {"prompt": "abc " * 8 + first["choices"][0]["text"] + "more", "max_tokens": 1}
    second = (await worker.ask("/v1/completions", again)).json()
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 16


async def test_salts_and_models_do_not_share_a_cache(mock: Any) -> None:
    worker = await mock("--model", "one", "--model", "two")
    cached = []
    for more in ({}, {}, {"cache_salt": ""}, {"cache_salt": "s"}, {"model": "two"}, {"model": "two"}):
        answer = (await worker.ask("/v1/completions", {"prompt": "abcd" * 40, **more})).json()
        cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 32, 0, 0, 0, 32]


async def test_a_prompt_beyond_the_models_length_is_a_400(mock: Any) -> None:
    worker = await mock("--max-model-len", "10")
    assert (await worker.ask("/v1/completions", {"prompt": "abcd" * 9, "max_tokens": 1})).status_code == 200
    for count, limit in ((9, 2), (10, None), (11, 1)):
        body = {"prompt": "abcd" * count, "max_tokens": limit}
        answer = await worker.ask("/v1/completions", body)
        assert answer.status_code == 400
        assert "maximum context length is 10" in answer.json()["error"]["message"]
