"""The law of dialects, held against every file in the room."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.contracts import Dialect, Usage
from router.errors import InvalidJson, Overloaded, Refusal
from router.plugins import build_dialects, dialect_names
from router.prompt import Prompt
from tests.router.test_errors import REFUSALS
from tests.support.strategies import MANY, json_values, requests, texts

DIALECTS = build_dialects()
FOLDER = Path(__file__).parents[2] / "router" / "dialects"
PLACES = [(dialect, path) for dialect in DIALECTS for path in dialect.paths]
TYPICAL = [place for place in PLACES if place[1] in ("/v1/chat/completions", "/v1/completions", "/v1/messages")]
TYPICAL += [(dialect, dialect.paths[0]) for dialect in DIALECTS if dialect.name not in ("openai", "anthropic")]
EVENTS = {
    "openai": b'data: {"choices":[{"delta":{"content":"x"}}]}',
    "anthropic": b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"x"}}',
}
FORMS: dict[str, set[str]] = {"openai": {"error"}, "anthropic": {"type", "error"}}


def named(places: list[tuple[Dialect, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("dialect", "path"), places, ids=[dialect.name + path for dialect, path in places])


places, typical = named(PLACES), named(TYPICAL)
each = pytest.mark.parametrize("dialect", DIALECTS, ids=dialect_names())


def numbers(answer: Any) -> bytes:
    return json.dumps(answer).encode()


@each
def test_a_dialect_is_named_after_its_file_and_has_paths(dialect: Dialect) -> None:
    assert type(dialect).__module__ == f"router.dialects.{dialect.name}"
    assert ast.get_docstring(ast.parse((FOLDER / f"{dialect.name}.py").read_text()))
    assert dialect.paths
    assert all(path.startswith("/") for path in dialect.paths)
    assert isinstance(dialect.native, bool)


def test_no_two_dialects_answer_one_path() -> None:
    paths = [path for _, path in PLACES]
    assert len(paths) == len(set(paths))


# Reading.


@typical
@given(body=st.binary(max_size=200))
def test_any_bytes_are_a_prompt_or_no_json(dialect: Dialect, path: str, body: bytes) -> None:
    try:
        assert isinstance(dialect.read(path, body), Prompt)
    except InvalidJson:
        return


@typical
@given(value=json_values)
def test_any_json_is_a_prompt(dialect: Dialect, path: str, value: Any) -> None:
    assert isinstance(dialect.read(path, json.dumps(value).encode()), Prompt)


@typical
@given(value=requests)
@example({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}, None, [], {"type": []}]}]})
@example({"messages": [{"content": {"a": 1}}, {}], "tools": {"a": [10**40]}, "model": "m"})
@example({"prompt": [[], {}, [None], [True], 1.5, "x", [2**80, -1]], "input": [{"role": 1, "content": [[[]]]}]})
@example({"messages": [{"role": "\ud800", "content": "\udfff", "name": "\ud800", "tool_calls": ["\ud800"]}]})
def test_any_request_is_a_prompt_whatever_its_fields_hold(dialect: Dialect, path: str, value: Any) -> None:
    prompt = dialect.read(path, json.dumps(value).encode())
    assert prompt == dialect.read(path, json.dumps(value).encode())
    model = value.get("model")
    assert prompt.model == (model if isinstance(model, str) else None)
    assert prompt.model_is_text == (model is None or isinstance(model, str))
    assert prompt.stream is (value.get("stream") is True)
    salt = value.get("cache_salt")
    assert prompt.cache_salt == (salt if isinstance(salt, str) else None)


@places
@pytest.mark.parametrize("body", [b"", b" ", b"{", b"nonsense", b"{'a': 1}", b'{"a":1', b"\x00", b'{"model":"m"} x'])
def test_what_is_no_json_is_refused_as_such(dialect: Dialect, path: str, body: bytes) -> None:
    with pytest.raises(InvalidJson) as refused:
        dialect.read(path, body)
    assert (refused.value.status, refused.value.code) == (400, "invalid_json")


@places
@pytest.mark.parametrize("body", [b"[]", b'"str"', b"null", b"1", b"true", b"{}", b'{"model":"m","input":{"x":1}}'])
def test_json_of_an_unknown_shape_has_nothing_to_hash_or_something_stable(
    dialect: Dialect, path: str, body: bytes
) -> None:
    assert dialect.read(path, body).text in (b"", b'\xffN\xfe{"x":1}\xfe')


@typical
@pytest.mark.parametrize("deep", [500, 5000, 200_000])
def test_deeply_nested_json_is_a_prompt(dialect: Dialect, path: str, deep: int) -> None:
    """Deeper than any reader's stack: this gateway finds nothing to hash, the worker may know better."""
    for field in (b"tools", b"messages", b"prompt", b"input", b"system", b"unknown"):
        body = b'{"model": "m", "%s": %s1%s}' % (field, b"[" * deep, b"]" * deep)
        try:
            assert isinstance(dialect.read(path, body), Prompt)
        except InvalidJson:
            assert deep > 1000


@places
def test_a_byte_order_mark_is_passed_over(dialect: Dialect, path: str) -> None:
    assert dialect.read(path, b'\xef\xbb\xbf{"model": "m"}').model == "m"


@places
def test_bytes_that_are_no_text_are_hashed_all_the_same(dialect: Dialect, path: str) -> None:
    assert dialect.read(path, b'{"model": "m", "cache_salt": "\xff\xfe"}').model == "m"


# Events and usage.


@each
@given(event=st.binary(max_size=200) | st.binary(max_size=100).map(b"data: ".__add__))
@example(b"data:")
@example(b"data: [DONE]")
@example(b": comment")
@example(b"data: null")
@example(b"data: []")
@example(b'data: {"choices": null}')
@example(b'data: {"choices": [{"delta": "text"}]}')
def test_any_bytes_are_an_event_with_a_token_or_without(dialect: Dialect, event: bytes) -> None:
    assert dialect.has_token(event) in (True, False)


@each
@pytest.mark.parametrize("deep", [500, 5000, 200_000])
def test_a_deeply_nested_event_is_no_trouble(dialect: Dialect, deep: int) -> None:
    assert dialect.has_token(b'data: {"choices":[{"text":' + b"[" * deep) in (True, False)
    assert dialect.has_token(b'data: {"choices":[{"text":%s1%s}]}' % (b"[" * deep, b"]" * deep)) in (True, False)


@each
def test_an_event_with_content_has_a_token(dialect: Dialect) -> None:
    event = EVENTS[dialect.name]
    for form in (
        event,
        event.replace(b"data: ", b"data:"),
        event.replace(b"\n", b"\r\n") + b"\r\n\r\n",
        event + b"\n\n",
    ):
        assert dialect.has_token(form)


@each
@pytest.mark.parametrize("event", [b"", b": ping", b"retry: 5000", b"id: 1", b"data:", b"data: [DONE]", b"event: ping"])
def test_an_event_without_content_has_none(dialect: Dialect, event: bytes) -> None:
    assert not dialect.has_token(event)


@each
@MANY
@given(tail=st.binary(max_size=300) | st.binary(max_size=100).map(lambda tail: b'{"usage": {"prompt_tokens": ' + tail))
@example(b'"usage": {"prompt_tokens": 99999999999999999999999999}')
@example(b'"usage"')
@example(b'"usage": null')
@example(b'{"usage": {"prompt_tokens": -1, "input_tokens": -1, "completion_tokens": -2, "output_tokens": -2}}')
@example(b'{"usage": {"prompt_tokens": "5", "input_tokens": true, "prompt_tokens_details": []}}')
@example(b'{"usage": ' + b"[" * 5000)
@example(b'{"usage": {"prompt_tokens": 1}, "x": ' + b"[" * 5000 + b"]" * 5000 + b"}")
def test_any_bytes_have_a_usage_or_none(dialect: Dialect, tail: bytes) -> None:
    usage = dialect.usage(tail)
    assert isinstance(usage, Usage)
    assert all(count is None or count >= 0 for count in (usage.prompt, usage.output, usage.cached))


@each
def test_what_was_not_said_is_none_and_not_zero(dialect: Dialect) -> None:
    assert dialect.usage(b"") == Usage(None, None, None)
    assert dialect.usage(numbers({"choices": [], "usage": None})) == Usage(None, None, None)
    said = dialect.usage(numbers({"usage": {"prompt_tokens": 5, "input_tokens": 5}}))
    assert (said.output, said.cached) == (None, None)


@each
@given(text=texts)
def test_numbers_in_the_answer_s_text_are_no_usage(dialect: Dialect, text: str) -> None:
    """An answer may talk about usage; inside its text every quote is escaped."""
    said = text + '"usage": {"prompt_tokens": 1, "input_tokens": 1, "completion_tokens": 2, "cached_tokens": 3}'
    assert dialect.usage(numbers({"choices": [{"text": said}]})) == Usage(None, None, None)


# Refusals.


@each
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_has_the_dialect_s_form(dialect: Dialect, refusal: type[Refusal]) -> None:
    kind, body = dialect.refusal(refusal("What to do.", param="model", retry_after=1.0))
    assert kind == b"application/json"
    told = json.loads(body)
    assert set(told) == FORMS[dialect.name]
    assert "What to do." in json.dumps(told)


@each
@given(message=texts, param=st.none() | texts)
@example("\ud800", None)
@example('\x00\r\n\t"\\', "\x7f")
def test_a_refusal_is_json_whatever_it_says(dialect: Dialect, message: str, param: str | None) -> None:
    _, body = dialect.refusal(Overloaded(message, param=param))
    assert isinstance(json.loads(body), dict)
