"""What the dialects share in reading."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.contracts import Usage
from router.dialects import _reading as reading
from router.errors import InvalidJson
from tests.support.strategies import json_values, texts


class Shape(msgspec.Struct):
    a: Any = None
    items: list[int] = []


class Turns(msgspec.Struct):
    a: Any = None
    messages: list[dict[str, Any]] = []


strict = msgspec.json.Decoder(Shape).decode


def test_a_body_of_the_shape_is_read() -> None:
    assert reading.decode(b'{"a": 1, "items": [1]}', strict, Shape) == Shape(1, [1])


@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"', b"1", b'{"items": {}}'])
def test_json_of_another_shape_is_none(body: bytes) -> None:
    assert reading.decode(body, strict, Shape) is None


@pytest.mark.parametrize("body", [b"", b"{", b"x", b'{"a": 1} trailing'])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidJson):
        reading.decode(body, strict, Shape)


@pytest.mark.parametrize("body", [b'{"a": NaN}', b'\xef\xbb\xbf{"a": 1}', b'{"a": "\\ud800"}', b'{"a": "\xff"}'])
def test_what_python_reads_and_others_do_not_is_read_leniently(body: bytes) -> None:
    found = reading.decode(body, strict, Shape)
    assert found is not None
    assert found.a is not None


@pytest.mark.parametrize("name", ["\ud800", "ä", "a\u200b"])
def test_a_field_whose_name_is_no_field_s_is_passed_over(name: str) -> None:
    """Also where that name is no valid Unicode, and in a list of turns."""
    body = json.dumps({name: 1, "a": {name: "\ud800"}, "messages": [{name: 1, "role": "user"}, "odd"]}).encode()
    found = reading.decode(body, msgspec.json.Decoder(Turns).decode, Turns)
    assert found is not None
    assert found.a == {name: "\ud800"}
    assert found.messages == [{"role": "user"}, {"content": "odd"}]


@given(json_values)
def test_any_json_value_is_loaded(value: Any) -> None:
    loaded = reading.loads(json.dumps(value).encode())
    assert json.dumps(loaded) == json.dumps(value)


def content(value: Any) -> bytes:
    out: list[bytes] = []
    reading.content(out, value)
    return b"".join(out)


@given(texts)
def test_text_and_one_text_part_of_it_are_the_same(said: str) -> None:
    assert content(said) == content([{"type": "text", "text": said}]) == content([{"text": said}]) == content([said])
    assert content(said) == content([{"type": "input_text", "text": said}])


@given(st.lists(texts, max_size=3), st.lists(texts, max_size=3))
@example(["a", "b"], ["ab"])
def test_lists_of_text_parts_are_told_apart(one: list[str], other: list[str]) -> None:
    """Two parts are not one part of both texts: templates put something between them."""
    first, second = ([{"type": "text", "text": said} for said in parts if said] for parts in (one, other))
    assert (content(first) == content(second)) == (first == second)


def test_null_content_is_nothing() -> None:
    assert content(None) == b""


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}},
        {"type": "input_audio", "input_audio": {"data": "B" * 1_000_000, "format": "wav"}},
        {"type": "file", "file": {"file_data": "C" * 1_000_000}},
        {"type": "image", "source": {"type": "base64", "data": "D" * 1_000_000}},
        {"type": "tool_result", "content": [{"type": "image", "source": {"data": "E" * 1_000_000}}]},
    ],
    ids=lambda part: part["type"],
)
def test_media_stand_for_themselves_with_a_short_digest(part: dict[str, Any]) -> None:
    assert len(content([part])) < 1000
    assert content([part]) == content([json.loads(json.dumps(part))])


def test_other_media_have_other_digests() -> None:
    def image(data: str) -> bytes:
        return content([{"type": "image_url", "image_url": {"url": data}}])

    assert image("a") != image("b")


def test_a_tool_s_result_counts() -> None:
    one, other = (content([{"type": "tool_result", "tool_use_id": "t", "content": said}]) for said in ("yes", "no"))
    assert one != other


@pytest.mark.parametrize("value", [5, 1.5, True, {"a": 1}, [None], [5], [[]], [{"type": "text"}], [{"text": 5}]])
def test_odd_content_is_something_stable(value: Any) -> None:
    assert content(value) == content(value) != b""


# Usage.

FULL = {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}


def test_the_usage_of_a_whole_answer() -> None:
    assert reading.json_usage(json.dumps({"id": "x", "usage": FULL}).encode()) == Usage(12, 3, 8)


def test_the_names_of_the_responses_api() -> None:
    usage = {"input_tokens": 12, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 3}
    assert reading.json_usage(json.dumps({"response": {"usage": usage}}).encode()) == Usage(12, 3, 8)


@pytest.mark.parametrize(
    "tail",
    [
        b'data: {"choices":[],"usage":%s}\n\ndata: [DONE]\n\n',
        b'data: {"choices":[],"usage":%s}\r\n\r\ndata: [DONE]\r\n\r\n',
        b'data:{"choices":[],"usage":%s}\n\n',
        b'data: {"choices":[],"usage":%s}',
        b'torn": 1}\n\ndata: {"usage" : %s}\n\n: keep-alive\n\ndata: [DONE]\n\n',
        b'data: {"usage":null}\n\ndata: {"usage":%s}\n\ndata: {"usage":null}\n\n',
    ],
)
def test_the_usage_of_a_stream_however_its_lines_end(tail: bytes) -> None:
    assert reading.json_usage(tail % json.dumps(FULL).encode()) == Usage(12, 3, 8)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("answer", [{"id": "x", "usage": FULL}, {"usage": FULL, "choices": [{"text": "a"}]}])
def test_the_usage_of_an_answer_that_was_printed_for_people(answer: dict[str, Any], end: str) -> None:
    """Indented JSON is one line after the other."""
    assert reading.json_usage(json.dumps(answer, indent=2).replace("\n", end).encode()) == Usage(12, 3, 8)


@pytest.mark.parametrize(
    "usage", [{**FULL, "prompt_tokens_details": None}, {**FULL, "new_details": [1]}, {**FULL, "cost": 0.1}]
)
def test_fields_of_usage_that_nobody_knows_yet_are_passed_over(usage: dict[str, Any]) -> None:
    found = reading.json_usage(json.dumps({"usage": usage}).encode())
    assert (found.prompt, found.output) == (12, 3)


def test_the_last_usage_counts() -> None:
    """Some engines report running totals with every event."""
    stream = b"".join(
        b'data: {"choices":[{}],"usage":{"prompt_tokens":12,"completion_tokens":%d}}\n\n' % at for at in range(5)
    )
    assert reading.json_usage(stream) == Usage(12, 4, None)


@given(st.binary(max_size=400))
def test_any_tail_has_a_usage_or_none(tail: bytes) -> None:
    assert isinstance(reading.json_usage(tail), Usage)


# Events.


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: x", b"x"),
        (b"data:x", b"x"),
        (b"data:  x", b" x"),
        (b"event: e\ndata: x\nid: 1", b"x"),
        (b"data: a\r\ndata: b\r\n", b"a\nb"),
        (b"data: a\rdata: b", b"a\nb"),
        (b": data: x", b""),
        (b"data", b""),
        (b"", b""),
        (b"database: x", b""),
    ],
)
def test_the_data_of_an_event_is_its_data_lines_joined(event: bytes, data: bytes) -> None:
    assert reading.event_data(event) == data
