"""Anthropic's messages API."""

import json
from typing import Any

import pytest
from hypothesis import given

from router.contracts import Usage
from router.dialects.anthropic import build
from router.errors import NoReadyWorker, Overloaded, Refusal
from router.prompt import Prompt
from tests.router.test_errors import REFUSALS
from tests.support.strategies import texts

PATH = "/v1/messages"
DIALECT = build()
TYPES = {
    "invalid_request_error", "authentication_error", "permission_error", "not_found_error", "request_too_large",
    "rate_limit_error", "api_error", "overloaded_error", "timeout_error",
}  # fmt: skip


def read(**body: Any) -> Prompt:
    return DIALECT.read(PATH, json.dumps({"model": "m", **body}).encode())


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_the_prompt_is_written_in_the_template_s_order() -> None:
    """Tools, then the system text, then the turns, whatever their order in the body."""
    text = read(messages=[user("hi")], system="be brief", tools=[{"a": 1}]).text
    assert text == b'\xffF\xfe[{"a":1}]\xfe\xffTsystem\xfebe brief\xffTuser\xfehi'


@given(texts)
def test_a_system_text_and_one_block_of_it_are_the_same(said: str) -> None:
    blocks = [{"type": "text", "text": said, "cache_control": {"type": "ephemeral"}}]
    assert read(system=said).text == read(system=blocks).text
    assert read(messages=[user(said)]).text == read(messages=[user(blocks)]).text


def test_a_chat_here_has_the_bytes_of_the_same_chat_at_openai_s_path() -> None:
    """One conversation over either API is one prefix for the engine."""
    from router.dialects.openai import CHAT
    from router.dialects.openai import build as build_openai

    body = json.dumps({"messages": [{"role": "system", "content": "s"}, user("hi")]}).encode()
    assert read(system="s", messages=[user("hi")]).text == build_openai().read(CHAT, body).text


def test_a_longer_conversation_begins_with_the_shorter_one() -> None:
    turns = [user("hi"), {"role": "assistant", "content": [{"type": "text", "text": "hello"}]}, user("and now?")]
    for length in range(1, 3):
        assert read(messages=turns[: length + 1]).text.startswith(read(messages=turns[:length]).text)


def test_tool_calls_and_their_results_count() -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}}
    texts_seen = {
        read(messages=[{"role": "assistant", "content": [{**call, "input": {"x": at}}]}]).text for at in range(3)
    } | {
        read(messages=[user([{"type": "tool_result", "tool_use_id": "t", "content": str(at)}])]).text for at in range(3)
    }
    assert len(texts_seen) == 6


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "base64", "data": "A" * 500_000}},
        {"type": "document", "source": {"type": "base64", "data": "A" * 500_000}},
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": {"data": "A" * 500_000}}]},
    ],
)
def test_media_are_digests_wherever_they_stand(part: dict[str, Any]) -> None:
    """Screenshots come as tool results, one each turn."""
    assert len(read(messages=[user([part])]).text) < 1000


@pytest.mark.parametrize("messages", [None, "text", 5, {}, ["text"], [None], [user("a"), 5]])
def test_a_request_whose_turns_are_odd_keeps_its_model_stream_and_salt(messages: Any) -> None:
    prompt = read(messages=messages, stream=True, cache_salt="s")
    assert (prompt.model, prompt.stream, prompt.cache_salt) == ("m", True, "s")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}, True),
        ({"type": "message_start", "message": {"usage": {"input_tokens": 5}}}, False),
        ({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}, False),
        ({"type": "ping"}, False),
        ({"type": "message_stop"}, False),
    ],
)
def test_only_a_content_delta_carries_a_token(event: dict[str, Any], expected: bool) -> None:
    data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
    assert DIALECT.has_token(data) is expected


def test_what_was_read_from_the_cache_is_part_of_the_prompt() -> None:
    answer = {"usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 7}}
    assert DIALECT.usage(json.dumps(answer).encode()) == Usage(100, 7, 90)


def test_without_a_word_on_the_cache_the_prompt_is_the_input() -> None:
    assert DIALECT.usage(b'{"usage": {"input_tokens": 10, "output_tokens": 7}}') == Usage(10, 7, None)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_stream_s_usage_is_at_its_start_and_at_its_end(end: bytes) -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 10, "cache_read_input_tokens": 90}}}
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
    stream = b"".join(b"data: " + json.dumps(event).encode() + end * 2 for event in (start, {"type": "ping"}, last))
    assert DIALECT.usage(stream) == Usage(100, 7, 90)


def test_a_refusal_is_anthropic_s_error_object() -> None:
    kind, body = DIALECT.refusal(Overloaded("Later."))
    assert kind == b"application/json"
    assert json.loads(body) == {"type": "error", "error": {"type": "rate_limit_error", "message": "Later."}}
    assert json.loads(DIALECT.refusal(NoReadyWorker("x"))[1])["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize("refusal", REFUSALS)
def test_every_refusal_has_a_type_that_anthropic_s_clients_know(refusal: type[Refusal]) -> None:
    assert json.loads(DIALECT.refusal(refusal("why"))[1])["error"]["type"] in TYPES


def test_this_is_its_path() -> None:
    assert DIALECT.paths == (PATH,)
    assert not DIALECT.native
