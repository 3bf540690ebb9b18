"""How a worker's answer may be framed."""

import pytest

from router.errors import BrokenAnswer
from router.proxy.answer_law import framing

LENGTH, CHUNKED = (b"content-length", b"5"), (b"transfer-encoding", b"Chunked")


def test_a_length_chunks_or_the_connections_end() -> None:
    assert framing(200, [LENGTH]) == (5, False)
    assert framing(200, [CHUNKED]) == (None, False)
    assert framing(200, [(b"content-type", b"text/plain")]) == (None, True)


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body(status: int) -> None:
    assert framing(status, []) == (None, False)


@pytest.mark.parametrize("value", [b"gzip", b"identity", b"gzip, chunked", b"chunked, chunked", b""])
def test_another_coding_is_broken(value: bytes) -> None:
    with pytest.raises(BrokenAnswer):
        framing(200, [(b"transfer-encoding", value)])


def test_chunked_twice_is_broken() -> None:
    with pytest.raises(BrokenAnswer):
        framing(200, [CHUNKED, CHUNKED])


@pytest.mark.parametrize("status", [0, 99, 600, 999])
def test_a_status_that_is_none_is_broken(status: int) -> None:
    with pytest.raises(BrokenAnswer):
        framing(status, [LENGTH])
