"""JSON at the border."""

import json

import msgspec
import pytest

from backends.wire import ApiError, decode, encode, read


class Shape(msgspec.Struct):
    name: str
    items: list[int] = []


def test_what_clients_really_send_is_read() -> None:
    assert decode(b'{"a": NaN, "b": "\\ud800", "c": 1, "c": 2}')["c"] == 2


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff"])
def test_what_is_no_json_is_an_api_error(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        decode(body)
    assert caught.value.status == 400


def test_a_wrong_field_is_named_and_unknown_ones_are_ignored() -> None:
    assert read({"name": "x", "more": 1}, Shape).name == "x"
    with pytest.raises(ApiError) as caught:
        read({"name": 1}, Shape)
    assert caught.value.param == "name"


def test_a_wrong_field_may_be_no_unicode_either() -> None:
    with pytest.raises(ApiError) as caught:
        read({"name": "x", "items": "\ud800"}, Shape)
    assert caught.value.status == 400


def test_text_that_is_no_unicode_is_written_escaped() -> None:
    assert json.loads(encode({"a": "\ud800"})) == {"a": "\ud800"}
    assert encode({"a": "é"}) == '{"a":"é"}'.encode()


def test_an_error_has_both_forms() -> None:
    error = ApiError(404, "No.", "NotFoundError", "model")
    assert error.openai()["error"] == {"message": "No.", "type": "NotFoundError", "param": "model", "code": 404}
    assert error.anthropic()["error"] == {"type": "not_found_error", "message": "No."}
