"""No form of the caller's key goes on, and no worker's key comes back."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.credentials import MASK, use_up, veiled, without_userinfo
from router.proxy.headers import Headers, take_in
from router.types import worker_from_url

KEY = b"sk-c4ller+/="


def used_up(headers: Headers, target: bytes = b"/v1/x", key: bytes = KEY) -> tuple[bytes, bytes, bytes | None]:
    taken = take_in([(b"authorization", b"Bearer " + key), *headers])
    target = use_up(taken, target)
    return taken.lines, target, taken.given_id


def test_what_does_not_hold_the_key_passes() -> None:
    headers = [(b"content-type", b"application/json"), (b"cookie", b"a=b; session_id=7"), (b"x-other", b"sk-c4lle")]
    lines, target, own_id = used_up([*headers, (b"x-request-id", b"my-id")], b"/v1/x?a=1&b=%2B")
    assert lines == b"".join(b"%s: %s\r\n" % header for header in headers)
    assert (target, own_id) == (b"/v1/x?a=1&b=%2B", b"my-id")


@pytest.mark.parametrize("header", [
    (b"cookie", b"a=b; api_key=" + KEY), (b"x-goog-api-key", KEY), (b"x-other", b"Token " + KEY),
    (b"referer", b"http://x/?key=" + KEY), (b"x-session-id", KEY),
])  # fmt: skip
def test_a_header_that_repeats_the_key_is_left_out(header: tuple[bytes, bytes]) -> None:
    lines, _, _ = used_up([(b"x-before", b"1"), header, (b"x-after", b"2")])
    assert lines == b"x-before: 1\r\nx-after: 2\r\n"


@pytest.mark.parametrize(("query", "left"), [
    (b"?key=" + KEY, b""), (b"?a=1&api_key=sk-c4ller%2B%2F%3D&b=2", b"?a=1&b=2"),
    (b"?%73%6b-c4ller%2b/=", b""), (b"?a=1&a=2", b"?a=1&a=2"), (b"?" + KEY + b"=1&x", b"?x"), (b"?", b"?"), (b"", b""),
])  # fmt: skip
def test_the_query_loses_the_parameters_that_hold_it(query: bytes, left: bytes) -> None:
    assert used_up([], b"/v1/x" + query)[1] == b"/v1/x" + left


def test_it_is_no_request_id() -> None:
    assert used_up([(b"x-request-id", b"sk-abc123")], key=b"sk-abc123")[2] is None


def test_every_key_shown_counts_whichever_let_the_caller_in() -> None:
    taken = take_in([(b"authorization", b"Bearer first-key"), (b"x-api-key", b"second-key"), (b"a", b"second-key"),
                     (b"b", b"first-key"), (b"c", b"third-key")])  # fmt: skip
    use_up(taken, b"/")
    assert taken.lines == b"c: third-key\r\n"


def test_a_short_key_counts_only_where_it_stands_alone() -> None:
    """It may be a word, and no request should lose its headers to it."""
    headers = [(b"content-type", b"application/json"), (b"accept", b"json"), (b"x-a", b"jsonp"), (b"x-b", b"a json")]
    lines, target, _ = used_up(headers, b"/v1/x?a=json&b=jsonp", key=b"json")
    assert lines == b"content-type: application/json\r\naccept: json\r\nx-a: jsonp\r\n"
    assert target == b"/v1/x?b=jsonp"


@given(st.binary(min_size=6, max_size=30).map(lambda raw: b64encode(raw)), st.lists(st.binary(max_size=20), max_size=4))
def test_whatever_is_sent_the_key_is_not_in_what_goes_on(key: bytes, values: list[bytes]) -> None:
    plain = [value.hex().encode() for value in values]
    headers = [(b"x-%d" % at, plain[at] + key * (at % 2)) for at in range(len(plain))]
    lines, target, _ = used_up(headers, b"/v1/x?k=" + key, key)
    assert key not in lines + target
    assert lines.count(b"\r\n") == sum(key not in value for _, value in headers)


def test_what_a_worker_repeats_of_its_own_key_is_masked() -> None:
    worker = worker_from_url("http://w:1", api_key="w0rker-key")
    headers = [(b"x-echo", b"Bearer w0rker-key"), (b"location", b"/x?key=w0rker-key"), (b"x-fine", b"w0rker")]
    assert veiled(headers, worker) == [
        (b"x-echo", b"Bearer " + MASK), (b"location", b"/x?key=" + MASK), (b"x-fine", b"w0rker"),
    ]  # fmt: skip


def test_so_are_name_and_password_from_its_url() -> None:
    worker = worker_from_url("http://user:p%40ssword@w:1")
    basic = b64encode(b"user:p@ssword")
    assert veiled([(b"x-a", b"Basic " + basic), (b"x-b", b"p@ssword")], worker) == [
        (b"x-a", b"Basic " + MASK), (b"x-b", MASK),
    ]  # fmt: skip


def test_a_redirect_names_no_user() -> None:
    headers = [(b"location", b"http://user:pw@w:1/x?a=b@c"), (b"refresh", b"0; url=https://u@w/"), (b"x", b"//u@w")]
    assert without_userinfo(headers) == [
        (b"location", b"http://w:1/x?a=b@c"), (b"refresh", b"0; url=https://w/"), (b"x", b"//u@w"),
    ]  # fmt: skip
