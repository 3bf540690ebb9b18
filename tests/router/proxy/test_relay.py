"""What is learned of an answer while it passes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.support.strategies  # noqa: F401 - the same examples everywhere
from router.contracts import Usage
from router.dialects.anthropic import Anthropic
from router.dialects.openai import OpenAI
from router.proxy.relay import MOST_HELD, NO_USAGE, TAIL, Meter
from tests.support.worker import DONE, event

EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]
JSON = [(b"content-type", b"application/json")]
USAGE = {"prompt_tokens": 70, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 64}}


def meter(headers: list[tuple[bytes, bytes]] = EVENTS) -> Meter:
    made = Meter(OpenAI())
    made.begin(headers)
    return made


STREAMED = event("") + b": a comment\n\n" + event("one") + event("two", usage=USAGE) + DONE


@given(st.lists(st.integers(0, len(STREAMED)), max_size=8))
def test_however_a_stream_is_cut_the_same_is_learned(cuts: list[int]) -> None:
    made = meter()
    edges = [0, *sorted(cuts), len(STREAMED)]
    first_at = STREAMED.index(event("one")) + len(event("one"))
    seen = [at for start, at in pairwise(edges) if made.read([STREAMED[start:at]])]
    assert len(seen) == 1
    assert seen[0] >= first_at
    assert made.usage() == Usage(70, 3, 64)
    assert made.bytes_out == len(STREAMED)


def test_one_read_may_bring_many_pieces() -> None:
    made = meter()
    assert made.read([event(""), event("one"), event("two")])
    assert not made.read([event("three")])


@pytest.mark.parametrize("between", [b"\r\n\r\n", b"\r\r"])
def test_every_line_end_of_the_standard_ends_an_event(between: bytes) -> None:
    made = meter()
    assert made.read([event("one")[:-2] + between])


def test_a_json_answer_has_no_first_token_but_a_usage() -> None:
    made = meter(JSON)
    assert not made.streaming
    assert not made.read([b'{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}'])
    assert made.usage() == Usage(5, 2, None)


def test_a_compressed_answer_is_not_read_and_its_first_byte_stands_for_the_token() -> None:
    made = meter([*EVENTS, (b"content-encoding", b"gzip")])
    assert made.read([b"\x1f\x8b..."])
    assert not made.read([b"more"])
    assert made.usage() == NO_USAGE


def test_identity_is_no_compression() -> None:
    made = meter([*EVENTS, (b"content-encoding", b"identity")])
    assert not made.read([event("")])
    assert made.read([event("one")])


def test_what_is_kept_is_bounded() -> None:
    made = meter(JSON)
    for _ in range(2000):
        made.read([b"x" * 1000])
    assert sum(map(len, made._tail)) <= TAIL + 1000
    made.read([b'"usage": {"prompt_tokens": 5, "completion_tokens": 2}}'])
    assert made.usage() == Usage(5, 2, None)
    assert made.bytes_out == 2_000_000 + 54


def test_an_event_without_an_end_is_given_up_within_a_bound() -> None:
    made = meter()
    reads = 0
    while not made.read([b"x" * 1000]):
        reads += 1
        assert reads <= MOST_HELD // 1000 + 1
    assert made._pending == b""


def test_the_dialect_says_what_a_token_is() -> None:
    made = Meter(Anthropic())
    made.begin(EVENTS)
    assert not made.read([b'event: message_start\ndata: {"type": "message_start"}\n\n'])
    assert made.read([b'event: content_block_delta\ndata: {"type": "content_block_delta"}\n\n'])
