"""Which requests may be gone on with by a text, and how they are asked for the rest."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects._continuation import CHAT, COMPLETIONS, MOST_BODY, can_go_on, onward

USER = {"role": "user", "content": "Hello"}
HALF = {"role": "assistant", "content": "Hel"}


def plain(**more: Any) -> bytes:
    return json.dumps({"model": "m", "stream": True, "prompt": "Hello", **more}).encode()


def chat(*messages: Any, **more: Any) -> bytes:
    return json.dumps({"model": "m", "stream": True, "messages": messages or [USER], **more}).encode()


def rest(body: bytes, text: str = "lo", spoken: int = 2) -> Any:
    found = onward(CHAT if b'"messages"' in body else COMPLETIONS, body, text, spoken)
    return None if found is None else json.loads(found)


HARMLESS = [
    {}, {"n": 1}, {"best_of": 1}, {"logprobs": None}, {"logprobs": False}, {"echo": False}, {"stop": ["x"]},
    {"response_format": {"type": "text"}}, {"tool_choice": "auto"}, {"tools": [{"type": "function"}]},
    {"modalities": ["text"]}, {"guided_json": None}, {"temperature": 0.7, "seed": 3},
]  # fmt: skip
HARMFUL = [
    {"stream": False}, {"stream": None}, {"n": 2}, {"n": "1"}, {"best_of": 2}, {"logprobs": 0.5}, {"logprobs": True},
    {"echo": True}, {"suffix": "x"}, {"response_format": {"type": "json_object"}}, {"guided_regex": "a*"},
    {"guided_anything": 1}, {"tool_choice": "required"}, {"tool_choice": {"type": "function"}},
    {"functions": [{"name": "f"}]}, {"modalities": ["audio"]}, {"audio": {"voice": "x"}}, {"grammar": "x"},
    {"regex": "x"}, {"structured_outputs": {"json": {}}}, {"prompt_logprobs": 1}, {"truncate_prompt_tokens": 9},
]  # fmt: skip


@pytest.mark.parametrize("more", HARMLESS, ids=str)
def test_a_request_for_one_text_can_be_gone_on_with(more: dict[str, Any]) -> None:
    assert can_go_on(COMPLETIONS, plain(**more))
    assert can_go_on(CHAT, chat(**more))


@pytest.mark.parametrize("more", HARMFUL, ids=str)
def test_a_request_for_more_or_other_than_a_text_cannot(more: dict[str, Any]) -> None:
    assert not can_go_on(COMPLETIONS, plain(**more))
    assert not can_go_on(CHAT, chat(**more))


@pytest.mark.parametrize("prompt", [None, [], ["a"], ["a", "b"], [1, 2], [[1]], {}], ids=str)
def test_only_a_prompt_of_one_text_can(prompt: Any) -> None:
    assert not can_go_on(COMPLETIONS, plain(prompt=prompt))


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/embeddings", "/generate"])
def test_other_paths_are_left_alone(path: str) -> None:
    assert not can_go_on(path, plain())
    assert not can_go_on(path, chat())


def test_a_chat_must_await_an_answer_or_go_on_with_a_text() -> None:
    assert can_go_on(CHAT, chat(USER, HALF, continue_final_message=True, add_generation_prompt=False))
    assert not can_go_on(CHAT, chat(USER, HALF))  # engines differ in what they make of it
    assert not can_go_on(CHAT, chat(USER, continue_final_message=True))
    assert not can_go_on(CHAT, chat(USER, add_generation_prompt=False))
    parts = {"role": "assistant", "content": [{"type": "text", "text": "Hel"}]}
    assert not can_go_on(CHAT, chat(USER, parts, continue_final_message=True))
    assert not can_go_on(CHAT, chat("Hello"))
    assert not can_go_on(CHAT, json.dumps({"stream": True, "messages": []}).encode())
    assert not can_go_on(CHAT, json.dumps({"stream": True, "messages": "Hello"}).encode())


@given(st.binary(max_size=60) | st.recursive(st.none() | st.text(), st.lists).map(lambda x: json.dumps(x).encode()))
def test_any_bytes_are_taken_without_failing(body: bytes) -> None:
    assert not can_go_on(CHAT, body)
    assert not can_go_on(COMPLETIONS, body)


def test_a_very_large_request_is_not_kept() -> None:
    assert not can_go_on(COMPLETIONS, plain(prompt="x" * MOST_BODY))


def test_a_prompt_is_followed_by_what_was_said() -> None:
    assert rest(plain(temperature=0.5)) == {
        "model": "m", "stream": True, "prompt": "Hellolo", "temperature": 0.5
    }  # fmt: skip


def test_a_chat_ends_with_what_was_said() -> None:
    found = rest(chat(tools=[1]))
    assert found["messages"] == [USER, {"role": "assistant", "content": "lo"}]
    assert (found["continue_final_message"], found["add_generation_prompt"], found["tools"]) == (True, False, [1])


def test_a_chat_that_went_on_already_goes_on_further() -> None:
    found = rest(chat(USER, HALF, continue_final_message=True, add_generation_prompt=False))
    assert found["messages"] == [USER, {"role": "assistant", "content": "Hello"}]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_what_was_said_counts(name: str) -> None:
    assert rest(plain(**{name: 3}))[name] == 1
    assert rest(plain(**{name: 2})) is None
    assert rest(plain(**{name: 1})) is None
    assert rest(plain(**{name: None}))[name] is None
    assert rest(plain(**{name: -1}))[name] == -1  # no limit, to some


def test_the_least_length_shrinks_too() -> None:
    assert rest(plain(min_tokens=5))["min_tokens"] == 3
    assert rest(plain(min_tokens=1))["min_tokens"] == 0


def test_where_nothing_was_said_the_request_is_as_it_was() -> None:
    body = plain().replace(b": ", b":   ")
    assert onward(COMPLETIONS, body, "", 0) is body


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_comes_through(text: str) -> None:
    assert rest(plain(), text, 1)["prompt"] == "Hello" + text
    assert rest(chat(), text, 1)["messages"][-1]["content"] == text
