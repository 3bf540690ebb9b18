"""Bytes to facts and facts to bytes."""

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from router.picker import messages
from router.picker.messages import (
    BUFFERED,
    ENDPOINT,
    FULL_DUPLEX,
    MOST_PIECE,
    NONE,
    Malformed,
    Order,
    pieces,
    read_message,
)
from tests.support.talks import request_head, response_head

read = ProcessingResponse.FromString


def test_the_place_goes_out_as_a_header_and_as_metadata_that_say_the_same() -> None:
    answer = read(messages.picked(Order("10.0.0.1:8000,10.0.0.2:8000"), in_body=False))
    common = answer.request_headers.response
    [put] = common.header_mutation.set_headers
    assert (put.header.key, put.header.raw_value) == (ENDPOINT, b"10.0.0.1:8000,10.0.0.2:8000")
    assert put.append_action == put.OVERWRITE_IF_EXISTS_OR_ADD
    assert common.clear_route_cache
    assert answer.dynamic_metadata["envoy.lb"][ENDPOINT] == "10.0.0.1:8000,10.0.0.2:8000"
    assert read(messages.picked(Order("a:1"), in_body=True)).HasField("request_body")


def test_no_place_takes_away_what_a_client_may_have_named() -> None:
    answer = read(messages.picked(Order(), in_body=False))
    assert list(answer.request_headers.response.header_mutation.remove_headers) == [ENDPOINT]
    assert not answer.HasField("dynamic_metadata")


def test_a_changed_body_is_told_with_its_length() -> None:
    answer = read(messages.picked(Order("a:1", body=b"four"), in_body=True))
    put = {each.header.key: each.header.raw_value for each in answer.request_body.response.header_mutation.set_headers}
    assert put["content-length"] == b"4"
    assert answer.request_body.response.body_mutation.body == b"four"


@pytest.mark.parametrize("size", [0, 1, MOST_PIECE, MOST_PIECE + 1, 5 * MOST_PIECE])
@pytest.mark.parametrize("last", [True, False])
def test_pieces_are_small_and_whole_together(size: int, last: bool) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    told = [
        read(each).request_body.response.body_mutation.streamed_response
        for each in pieces("request_body", body, last=last)
    ]
    assert b"".join(piece.body for piece in told) == body
    assert all(len(piece.body) <= MOST_PIECE for piece in told)
    assert [piece.end_of_stream for piece in told] == [False] * (len(told) - 1) + [last]


def test_modes_are_what_envoy_says_and_full_duplex_where_it_says_nothing() -> None:
    assert messages.modes_of(request_head(request=BUFFERED, response=NONE)) == (BUFFERED, NONE)
    assert messages.modes_of(request_head(request=None)) == (FULL_DUPLEX, FULL_DUPLEX)


def test_a_head_is_read_with_its_method_and_path_apart() -> None:
    headers, method, path = messages.headers_of(request_head("/a?b", "PUT", ("x-y", "z")).request_headers)
    assert (headers, method, path) == ([(b"x-y", b"z")], "PUT", "/a?b")


def test_an_older_envoy_s_values_are_read_too() -> None:
    message = request_head()
    message.request_headers.headers.headers.add(key="x-old", value="text")
    assert (b"x-old", b"text") in messages.headers_of(message.request_headers)[0]


def test_an_answer_is_read_with_who_gave_it() -> None:
    answer = messages.answer_of(response_head(404, served="1.2.3.4:5", details="via_upstream", end=True))
    assert (answer.status, answer.served, answer.details, answer.is_whole) == (404, "1.2.3.4:5", "via_upstream", True)
    assert messages.answer_of(response_head()).served == ""


def test_a_subset_may_be_a_list_or_a_text() -> None:
    assert messages.subset_of(request_head(subset=["a:1", "b:2"]), []) == {"a:1", "b:2"}
    assert messages.subset_of(request_head(subset=[]), []) == frozenset()
    assert messages.subset_of(request_head(subset="a:1, b:2"), []) == {"a:1", "b:2"}  # type: ignore[arg-type]
    assert messages.subset_of(request_head(), [(messages.SUBSET.encode(), b"a:1,b:2")]) == {"a:1", "b:2"}
    assert messages.subset_of(request_head(), []) is None


def test_bytes_that_are_no_message_are_an_error() -> None:
    with pytest.raises(Malformed):
        read_message(b"\xff\xff\xff")


@pytest.mark.parametrize("header", [("", "x"), ("content-length", "abc"), ("content-length", "9" * 5000)])
def test_a_header_that_http_knows_not_is_an_error(header: tuple[str, str]) -> None:
    with pytest.raises(Malformed):
        messages.headers_of(request_head("/a", "POST", header).request_headers)


@pytest.mark.parametrize("status", ["abc", "", "0", "-1", "20", "9" * 5000])
def test_a_response_without_a_status_is_an_error(status: str) -> None:
    message = response_head()
    message.response_headers.headers.headers[0].raw_value = status.encode()
    with pytest.raises(Malformed):
        messages.answer_of(message)
