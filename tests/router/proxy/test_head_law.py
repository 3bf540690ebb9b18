"""The heads that llhttp lets pass and this house does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.head_law import TARGET, field_fault, head_fault, start_fault

HOST = (b"host", b"localhost:8080")


@pytest.mark.parametrize("host", [b"localhost", b"a.example:80", b"[::1]:80", b"", b"1.2.3.4", b"a_b"])
def test_a_host_is_a_name_or_an_address(host: bytes) -> None:
    assert field_fault(b"host", host, "1.1") is None


@pytest.mark.parametrize("host", [b"a b", b"a,b", b"a/b", b"a@b", b"a#b", b"a?b", b"a\\b", b"\xff"])
def test_and_nothing_else(host: bytes) -> None:
    assert field_fault(b"host", host, "1.1")


def test_chunked_is_the_only_coding_and_only_in_1_1() -> None:
    assert field_fault(b"transfer-encoding", b" Chunked ", "1.1") is None
    assert field_fault(b"transfer-encoding", b"chunked", "1.0")
    for value in (b"gzip, chunked", b"identity", b"chunked, chunked", b""):
        assert field_fault(b"transfer-encoding", value, "1.1"), value


def test_a_framing_header_that_others_may_take_for_one_is_misspelt() -> None:
    assert field_fault(b"content_length", b"1", "1.1")
    assert field_fault(b"transfer_encoding", b"chunked", "1.1")
    assert field_fault(b"expect", b"100-continue", "1.1") is None


def test_one_host_is_needed_and_an_old_client_may_do_without() -> None:
    assert start_fault("1.1", b"/", 1) is None
    assert start_fault("1.0", b"/", 0) is None
    assert start_fault("1.1", b"/", 0)
    assert start_fault("1.1", b"/", 2)
    assert start_fault("1.0", b"/", 2)


@pytest.mark.parametrize("version", ["0.9", "2.0", "1.2", ""])
def test_other_versions_are_not_spoken(version: str) -> None:
    assert start_fault(version, b"/", 1)


def test_a_whole_head_holds_to_both() -> None:
    assert head_fault("1.1", b"/a?b", [HOST, (b"accept", b"*/*")]) is None
    assert head_fault("1.1", b"/a#b", [HOST])
    assert head_fault("1.1", b"/", [HOST, HOST])
    assert head_fault("1.1", b"/", [HOST, (b"transfer-encoding", b"gzip")])


def test_a_target_is_a_path_or_has_one() -> None:
    for target in (b"/", b"//", b"/a?b", b"http://a/b", b"HTTPS://[::1]:80/", b"*"):
        assert TARGET.match(target), target
    for target in (b"", b"a", b"http://a", b"http://a?b", b"http://a@b/", b"ftp://a/", b"*a", b"http:///a"):
        assert not TARGET.match(target), target


@given(st.binary(max_size=40), st.lists(st.tuples(st.sampled_from([b"host", b"x", b"expect"]), st.binary(max_size=20))))
def test_any_bytes_are_judged(target: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    fault = head_fault("1.1", target, headers)
    assert fault is None or fault.endswith(".")
