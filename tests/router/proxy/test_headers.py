"""The hop-by-hop law, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.support.strategies  # noqa: F401 - the same examples everywhere
from router.proxy.headers import (
    CREDENTIALS,
    HOP_BY_HOP,
    NOT_PLAIN,
    SPELLED,
    Headers,
    Ids,
    cookie,
    find,
    lowered,
    named_in_connection,
    request_id,
    retry_after,
    take_in,
    to_client,
)

names = st.sampled_from(sorted(NOT_PLAIN | {b"accept", b"x-a", b"x-b", b"traceparent", b"user-agent"}))
values = st.sampled_from(
    [b"", b"1", b"close", b"keep-alive", b"x-a, X-B", b"cookie,authorization", b"Bearer x", b"AWS4-HMAC x"]
)
headers = st.lists(st.tuples(names.filter(lambda name: name != b"content-length"), values), max_size=12)


def lines(taken: bytes) -> Headers:
    pairs = [line.split(b": ", 1) for line in taken.split(b"\r\n")[:-1]]
    return [(name, value) for name, value in pairs]


@given(headers)
def test_nothing_of_the_connection_and_nothing_named_by_it_crosses(given_headers: Headers) -> None:
    taken = take_in(given_headers)
    passed = lines(taken.lines) + lines(taken.credentials)
    named = {name for key, value in given_headers if key == b"connection" for name in named_in_connection(value)}
    for name, _ in passed:
        assert name not in HOP_BY_HOP | {b"host", b"content-length", b"expect", b"x-request-id"}
        assert name not in named
    assert {name for name, _ in lines(taken.credentials)} <= CREDENTIALS


@given(headers)
def test_all_else_crosses_in_order(given_headers: Headers) -> None:
    plain = [header for header in given_headers if header[0] not in NOT_PLAIN]
    named = {name for key, value in given_headers if key == b"connection" for name in named_in_connection(value)}
    passed = [header for header in lines(take_in(given_headers).lines) if header[0] not in NOT_PLAIN]
    assert passed == [header for header in plain if header[0] not in named]


@given(headers)
def test_what_comes_back_is_stripped_too(given_headers: Headers) -> None:
    passed = to_client(given_headers)
    named = {name for key, value in given_headers if key == b"connection" for name in named_in_connection(value)}
    assert not {name for name, _ in passed} & (HOP_BY_HOP | named | {b"x-request-id", b"content-length"})


def test_what_says_something_to_the_gateway_is_read() -> None:
    taken = take_in([
        (b"content-length", b"12"), (b"x-request-id", b"id"), (b"x-session-id", b"s"),
        (b"x-amzn-sagemaker-prefix-aware-id", b"p"), (b"authorization", b"Bearer k"),
    ])  # fmt: skip
    assert (taken.length, taken.given_id, taken.session, taken.prefix_id) == (12, b"id", "s", "p")
    assert taken.credentials == b"authorization: Bearer k\r\n"
    assert b"x-session-id: s" in taken.lines


def test_a_session_may_come_in_a_cookie_and_the_header_counts_more() -> None:
    assert take_in([(b"cookie", b"a=b; session_id=one")]).session == "one"
    assert take_in([(b"x-session-id", b"two"), (b"cookie", b"session_id=one")]).session == "two"
    assert take_in([(b"cookie", b"session_id=one"), (b"x-session-id", b"two")]).session == "two"


def test_aws_signatures_are_no_credentials_of_ours() -> None:
    assert take_in([(b"authorization", b"AWS4-HMAC-SHA256 Credential=x"), (b"x-amz-date", b"1")]).credentials == b""


@pytest.mark.parametrize("given_id", [b"a", b"A.b_c-9", b"x" * 128])
def test_a_safe_id_is_kept(given_id: bytes) -> None:
    assert request_id(given_id) == given_id.decode()


@pytest.mark.parametrize("given_id", [None, b"", b"x" * 129, b"a b", b"a\n", b"\xff", b"a/b", b"a\x00"])
def test_any_other_becomes_a_new_one(given_id: bytes | None) -> None:
    first, second = request_id(given_id), request_id(given_id)
    assert first != second
    assert request_id(first.encode()) == first


def test_a_cookie_is_read_by_its_whole_name() -> None:
    assert cookie(b"xsession_id=1; session_id=2; session_id=3", b"session_id") == "2"
    assert cookie(b'session_id="quoted"', b"session_id") == "quoted"
    assert cookie(b"session_id; a=b", b"session_id") is None
    assert cookie(b"session_id=", b"session_id") is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"5", 5.0), (b"0", 0.0), (b"-1", None), (b"1.5", None), (b"Wed, 21 Oct 2026 07:28:00 GMT", None),
     (b"9" * 400, None), (b"", None), (b"\xb2", None)],
)  # fmt: skip
def test_only_seconds_are_read_of_a_retry_after(value: bytes, seconds: float | None) -> None:
    assert retry_after([(b"retry-after", value)]) == seconds


def test_the_first_of_a_header_is_found() -> None:
    assert find([(b"a", b"1"), (b"b", b"2"), (b"b", b"3")], b"b") == b"2"
    assert find([], b"b") is None


def test_a_worker_sends_no_credentials_to_clients() -> None:
    headers = [(b"authorization", b"Bearer x"), (b"x-api-key", b"x"), (b"api-key", b"x"), (b"x-other", b"y")]
    assert to_client(headers) == [(b"x-other", b"y")]


def test_new_ids_are_32_hexadecimal_digits_in_order_also_where_the_upper_digits_change() -> None:
    ids = Ids("0123456789abcdef")
    made = [ids.new() for _ in range(3 * 65_536)]
    assert made == [f"0123456789abcdef{number:016x}" for number in range(1, len(made) + 1)]


@given(st.binary(min_size=1, max_size=20) | st.sampled_from(sorted(SPELLED)))
def test_a_name_is_in_lower_case_whether_it_is_a_usual_one_or_not(name: bytes) -> None:
    assert lowered(name) == name.lower()
