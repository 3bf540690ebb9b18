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


async def test_each_prompt_has_its_choices_side_by_side_and_counts_once(mock: Any) -> None:
    worker = await mock()
    prompts = ["a tide", "a rock of another length"]
    alone = [(await worker.ask("/v1/completions", {"prompt": prompt, "max_tokens": 3})).json() for prompt in prompts]
    both = (await worker.ask("/v1/completions", {"prompt": prompts, "max_tokens": 3, "n": 2})).json()
    texts = [one["choices"][0]["text"] for one in alone]
    assert [choice["text"] for choice in both["choices"]] == [texts[0], texts[0], texts[1], texts[1]]
    assert [choice["index"] for choice in both["choices"]] == [0, 1, 2, 3]
    assert both["usage"]["prompt_tokens"] == sum(one["usage"]["prompt_tokens"] for one in alone)
    assert both["usage"]["completion_tokens"] == 12


async def test_each_choice_stops_for_itself(mock: Any, events_of: Any) -> None:
    """One ends at the stop string, the other goes on to its length; streamed as whole."""
    worker = await mock()
    prompts = ["a tide", "a rock"]
    whole = (await worker.ask("/v1/completions", {"prompt": prompts, "max_tokens": 6})).json()
    first, second = (choice["text"] for choice in whole["choices"])
    stop = next(first[at : at + 4] for at in range(len(first)) if first[at : at + 4] not in second)
    body = {"prompt": prompts, "max_tokens": 6, "stop": stop}
    stopped = (await worker.ask("/v1/completions", body)).json()["choices"]
    assert [choice["text"] for choice in stopped] == [first[: first.index(stop)], second]
    assert [choice["finish_reason"] for choice in stopped] == ["stop", "length"]
    assert [choice["stop_reason"] for choice in stopped] == [stop, None]
    texts = ["", ""]
    for event in events_of((await worker.ask("/v1/completions", {**body, "stream": True})).text)[:-1]:
        texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert texts == [choice["text"] for choice in stopped]


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_are_lists_beside_the_text(mock: Any, events_of: Any, stream: bool) -> None:
    worker = await mock()
    body = {"prompt": "a tide", "max_tokens": 4, "logprobs": 1, "stream": stream}
    answer = await worker.ask("/v1/completions", body)
    choices = [event["choices"][0] for event in events_of(answer.text)[:-1]] if stream else answer.json()["choices"]
    found = [choice["logprobs"] for choice in choices if choice["logprobs"] is not None]
    tokens = [token for one in found for token in one["tokens"]]
    assert "".join(tokens) == "".join(choice["text"] for choice in choices)
    assert [offset for one in found for offset in one["text_offset"]] == [0, 1, 5, 9]
    assert found[0]["token_logprobs"][0] == 0.0
    assert all(token in top for one in found for token, top in zip(one["tokens"], one["top_logprobs"], strict=True))


@pytest.mark.parametrize("logprobs", [-1, 6, True, "2"])
async def test_a_wish_for_log_probabilities_that_makes_no_sense_is_a_400(mock: Any, logprobs: Any) -> None:
    worker = await mock()
    answer = await worker.ask("/v1/completions", {"prompt": "a", "logprobs": logprobs})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "logprobs"
