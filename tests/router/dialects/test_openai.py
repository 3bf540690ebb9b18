"""OpenAI's API: what counts of a request, in the order of the template, and how a refusal looks."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.openai import CHAT, OpenAI, build
from router.errors import ModelNotFound, NoReadyWorker
from router.prompt import BIG_IDS, IDS, NEXT, OPEN, TEXT, Prompt
from tests.support.strategies import texts

COMPLETIONS, RESPONSES = "/v1/completions", "/v1/responses"
TOOLS = [{"type": "function", "function": {"name": f"f{at}", "parameters": {"type": "object"}}} for at in range(10)]
DIALECT = build()

turns = st.lists(st.tuples(st.sampled_from(["user", "assistant", "system", "tool", "odd"]), texts), max_size=3)


def read(path: str, **body: Any) -> Prompt:
    return DIALECT.read(path, json.dumps({"model": "m", **body}).encode())


def chat(*messages: dict[str, Any], **fields: Any) -> bytes:
    return read(CHAT, messages=list(messages), **fields).text


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


def system(content: Any) -> dict[str, Any]:
    return {"role": "system", "content": content}


def test_the_prompt_is_written_in_the_template_s_order() -> None:
    """Tools, then the turns; each role and content."""
    text = chat(system("be brief"), user("hi"), tools=[{"a": 1}])
    assert text == b'\xffF\xfe[{"a":1}]\xfe\xffTsystem\xfebe brief\xffTuser\xfehi'


def test_other_tools_make_another_beginning_and_the_same_tools_the_same() -> None:
    one, other = chat(user("a"), tools=TOOLS), chat(user("a"), tools=TOOLS[::-1])
    assert one[:40] != other[:40] or one.index(b"\xffT") == other.index(b"\xffT")
    assert one != other
    question = chat(user("another question"), tools=TOOLS)
    assert question.startswith(one[: one.index(b"\xffT")])


def test_no_tools_are_the_same_as_an_empty_list_of_them() -> None:
    assert chat(user("a")) == chat(user("a"), tools=[]) == chat(user("a"), tools=None)


def test_a_longer_conversation_begins_with_the_shorter_one() -> None:
    turns = [system("be brief"), user("hi"), {"role": "assistant", "content": "hello"}, user("and now?")]
    for length in range(1, len(turns)):
        assert chat(*turns[: length + 1]).startswith(chat(*turns[:length]))


@given(texts)
def test_string_content_and_one_text_part_give_the_same_bytes(said: str) -> None:
    assert chat(user(said)) == chat(user([{"type": "text", "text": said}]))


@given(turns, turns)
def test_different_chats_never_give_the_same_bytes(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> None:
    first, second = (chat(*({"role": role, "content": said} for role, said in turns)) for turns in (one, other))
    assert (first == second) == (one == other)


@pytest.mark.parametrize("role", ["user", "system", "développeur", "\ud800", "x" * 1000])
def test_any_role_is_written_as_it_is(role: str) -> None:
    assert chat({"role": role, "content": "a"}) == b"\xffT" + role.encode("utf-8", "surrogatepass") + b"\xfea"


@pytest.mark.parametrize("message", [{"content": "a"}, {"role": None, "content": "a"}, {"role": 5, "content": "a"}])
def test_a_turn_without_a_role_is_a_turn_all_the_same(message: dict[str, Any]) -> None:
    assert chat(message) == b"\xffT\xfea"


def test_null_content_contributes_its_tool_calls() -> None:
    def call(arguments: str) -> dict[str, Any]:
        called = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [called]}

    assert chat(user("a"), call("{}")) != chat(user("a"), call('{"x": 1}'))
    assert chat(user("a"), call("{}")).startswith(chat(user("a")))
    assert chat(call("{}")) != chat({"role": "assistant", "content": None})


def test_a_tool_s_answer_carries_the_call_it_answers() -> None:
    one, other = (chat({"role": "tool", "content": "4", "tool_call_id": name}) for name in ("c1", "c2"))
    assert one != other


def test_a_name_counts() -> None:
    assert chat(user("a", name="ann")) != chat(user("a", name="bob")) != chat(user("a"))


def test_a_lone_surrogate_is_hashed_all_the_same() -> None:
    assert chat(user("a\ud800")) == b"\xffTuser\xfea\xed\xa0\x80"
    assert chat(user("a\ud800")) != chat(user("a\ud801"))


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:" + "A" * 500_000}}],
        [{"type": "input_audio", "input_audio": {"data": "A" * 500_000}}, {"type": "text", "text": "listen"}],
        [{"type": "file", "file": {"file_data": "A" * 500_000}}],
    ],
)
def test_media_are_digests_and_text_beside_them_is_text(content: list[dict[str, Any]]) -> None:
    text = chat(user(content))
    assert len(text) < 100
    assert b"\xffM\xfe" in text
    for part in content:
        assert part["type"] != "text" or part["text"].encode() in text


def test_what_comes_after_an_image_counts() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:xyz"}}
    one, other = (chat(user([image, {"type": "text", "text": said}])) for said in ("what?", "where?"))
    assert one != other


def test_twenty_chats_in_part_form_give_twenty_prompts() -> None:
    assert len({chat(user([{"type": "text", "text": f"topic {at}"}])) for at in range(20)}) == 20


@pytest.mark.parametrize("messages", [None, "text", 5, {}, [1], ["text"], [None], [[]], [user("a"), None]])
@pytest.mark.parametrize("path", [CHAT, RESPONSES, "/tokenize"])
def test_a_request_whose_turns_are_odd_keeps_its_model_stream_and_salt(path: str, messages: Any) -> None:
    """The worker may know better; what this gateway needs to route is there."""
    prompt = read(path, messages=messages, stream=True, cache_salt="s", prompt_cache_key="k")
    assert (prompt.model, prompt.stream, prompt.cache_salt, prompt.cache_key) == ("m", True, "s", "k")


def test_what_is_no_text_is_no_model() -> None:
    prompt = DIALECT.read(CHAT, b'{"model": 5}')
    assert (prompt.model, prompt.model_is_text) == (None, False)
    prompt = DIALECT.read(CHAT, b"{}")
    assert (prompt.model, prompt.model_is_text) == (None, True)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_an_absent_salt_is_not_an_empty_one(path: str) -> None:
    assert read(path).cache_salt is None
    assert read(path, cache_salt="").cache_salt == ""
    assert read(path, prompt_cache_key="").cache_key == ""
    assert read(path).cache_key is None


@pytest.mark.parametrize(
    ("stream", "streams"), [(True, True), (False, False), (None, False), ("true", False), (1, False)]
)
def test_only_true_is_a_stream(stream: Any, streams: bool) -> None:
    assert read(CHAT, messages=[user("a")], stream=stream).stream is streams


def test_python_s_odd_json_is_read_like_plain_json() -> None:
    """A body that only the lenient reader takes has the bytes that the strict one gives."""
    plain = chat(user("a"), tools=TOOLS)
    odd = DIALECT.read(CHAT, json.dumps({"x": float("nan"), "messages": [user("a")], "tools": TOOLS}).encode())
    assert odd.text == plain


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "a text"}),
        ("/v1/completions", {"prompt": [1, 2]}),
        ("/v1/embeddings", {"input": ["a", "b"]}),
        ("/v1/responses", {"instructions": "be brief", "input": [{"role": "user", "content": "a"}]}),
        ("/v1/rerank", {"query": "text"}),
        ("/tokenize", {"messages": [{"role": "user", "content": "a"}]}),
    ],
)
def test_odd_json_is_read_like_plain_json_on_every_path(path: str, body: dict[str, Any]) -> None:
    plain = read(path, **body)
    assert plain.text
    for odd in ({"x": float("nan")}, {"x": "\ud800"}, {"\ud800": 1}, {"x": {"\ud800": [{"\udfff": None}]}}):
        assert read(path, **{"messages": None, **odd, **body}) == plain


def test_a_prompt_that_is_no_valid_unicode_is_hashed_all_the_same() -> None:
    assert read(COMPLETIONS, prompt="a\ud800b").text == b"\xffPa\xed\xa0\x80b"


# The shapes of `prompt`.


def complete(prompt: Any) -> bytes:
    return read(COMPLETIONS, prompt=prompt).text


def test_all_four_shapes_of_a_prompt_are_read() -> None:
    assert complete("a") == b"\xffPa"
    assert complete(["a", "b"]) == b"\xffPa" + NEXT + b"\xffPb"
    assert complete([1, 200]) == IDS + OPEN + b"\x01\xc3\x88"
    assert complete([[1, 2], [3, 4]]) == IDS + OPEN + b"\x01\x02" + NEXT + IDS + OPEN + b"\x03\x04"
    assert complete([2**31, -1]) == BIG_IDS + OPEN + b"2147483648,-1"


def test_ids_decide_by_content_and_order_and_never_by_count_or_digits() -> None:
    assert complete([101, 7, 8, 9]) != complete([55, 1, 2, 3])
    assert complete([71, 85]) != complete([7185])
    assert complete([1, 2]) != complete([2, 1])
    assert complete([5, 6, 7, 8]).startswith(complete([5, 6, 7]))
    assert complete([1, 2]) != complete("1,2") != complete(["1", "2"])


token_ids = st.integers(0, 0x10FFFF) | st.integers(0, 2**31 - 1)
shapes = st.one_of(
    texts.filter(bool),
    st.lists(texts.filter(bool), min_size=2, max_size=3),
    st.lists(token_ids, min_size=1, max_size=4),
    st.lists(st.lists(token_ids, min_size=1, max_size=3), min_size=2, max_size=3),
)


@given(shapes, shapes)
def test_different_shapes_never_collide(one: Any, other: Any) -> None:
    assert (complete(one) == complete(other)) == (one == other)


def test_text_after_ids_is_not_taken_for_more_ids() -> None:
    """Ids are text as well, so whatever is behind them opens with marks that no id can hold."""
    assert complete([[1, 2], "ab"]) == IDS + OPEN + b"\x01\x02" + NEXT + TEXT + b"ab"
    for number in (0xFF, 0xFE, 0xD800, 0x10FFFF, int.from_bytes(b"\xffPab", "little")):
        assert complete([[1, 2], "ab"]) != complete([[1, 2, number]])
        assert complete([number]).count(b"\xff") == 1


@pytest.mark.parametrize("prompt", [None, "", [], [[]], [""], {}, 5, True, [None], [True, False], [1.5], [{"a": 1}]])
def test_odd_prompts_are_something_or_nothing_and_never_a_failure(prompt: Any) -> None:
    assert isinstance(complete(prompt), bytes)


def test_true_and_false_are_no_token_ids() -> None:
    assert IDS not in complete([True, False])


# The other paths.


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": "text"}),
        ("/v1/embeddings", {"input": ["text", "more"]}),
        ("/v1/embeddings", {"input": [1, 2, 3]}),
        ("/v1/responses", {"input": "text"}),
        ("/v1/responses", {"input": [user("text")]}),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "text"}]}]}),
        ("/v1/rerank", {"query": "text", "documents": ["a"]}),
        ("/v1/score", {"text_1": "text", "text_2": "b"}),
        ("/tokenize", {"prompt": "text"}),
        ("/tokenize", {"messages": [user("text")]}),
        (COMPLETIONS, {"prompt": "text"}),
        (CHAT, {"messages": [user("text")]}),
    ],
)
def test_every_path_finds_its_text(path: str, body: dict[str, Any]) -> None:
    prompt = read(path, **body)
    changed = read(path, **json.loads(json.dumps(body).replace("text", "tale").replace("tale_1", "text_1")))
    assert prompt.text
    if "[1, 2, 3]" not in json.dumps(body):
        assert b"text" in prompt.text
        assert changed.text != prompt.text


def test_the_instructions_of_a_response_are_its_system_turn() -> None:
    assert read(RESPONSES, instructions="be brief", input=[user("hi")]).text == chat(system("be brief"), user("hi"))


def test_the_turns_of_a_response_are_the_turns_of_a_chat() -> None:
    turns = [system("s"), user("hi"), {"role": "assistant", "content": "hello"}]
    assert read(RESPONSES, input=turns).text == chat(*turns)
    odd = DIALECT.read(RESPONSES, json.dumps({"input": [{**each, "\ud800": None} for each in turns]}).encode())
    assert odd.text == chat(*turns)


def test_a_response_s_tool_results_count() -> None:
    one, other = (
        read(RESPONSES, input=[user("a"), {"type": "function_call_output", "call_id": "c", "output": out}]).text
        for out in ("1", "2")
    )
    assert one != other


# Events, and refusals.


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"choices": [{"delta": {"content": "x"}}]}, True),
        ({"choices": [{"delta": {"reasoning_content": "x"}}]}, True),
        ({"choices": [{"delta": {"reasoning": "x"}}]}, True),
        ({"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}, True),
        ({"choices": [{"text": "x"}]}, True),
        ({"choices": [{"delta": {}}, {"delta": {"content": "x"}}]}, True),
        ({"type": "response.output_text.delta", "delta": "x"}, True),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, False),
        ({"choices": [{"delta": {}, "finish_reason": "stop"}]}, False),
        ({"choices": [{"text": ""}]}, False),
        ({"choices": [], "usage": {"prompt_tokens": 1}}, False),
        ({"type": "response.created"}, False),
        ({"error": {"message": "x"}}, False),
    ],
)
def test_an_event_has_a_token_when_it_carries_content(event: dict[str, Any], expected: bool) -> None:
    assert DIALECT.has_token(b"data: " + json.dumps(event).encode() + b"\n\n") is expected


def test_a_refusal_is_openai_s_error_object() -> None:
    kind, body = OpenAI().refusal(ModelNotFound("No such model.", param="model"))
    assert kind == b"application/json"
    assert json.loads(body) == {
        "error": {
            "message": "No such model.",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
    told = json.loads(OpenAI().refusal(NoReadyWorker("Later."))[1])["error"]
    assert (told["type"], told["param"], told["code"]) == ("server_error", None, "no_ready_worker")


def test_these_are_its_paths() -> None:
    assert set(DIALECT.paths) == {
        CHAT, COMPLETIONS, RESPONSES, "/v1/embeddings", "/v1/rerank", "/v1/score", "/tokenize", "/detokenize",
    }  # fmt: skip
    assert not DIALECT.native
