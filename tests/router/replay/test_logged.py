"""The gateway's access log as a trace."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.fingerprint import fingerprint
from router.events import Finished
from router.replay.logged import USUAL_OUTPUT, LogLine, logged_rows, prefix_of, seconds_of
from router.replay.rows import Row, TraceError

TEXT = bytes(range(97, 123)) * 200


def logged(text: bytes, second: int = 10, **more: object) -> LogLine:
    prefix = fingerprint(text, 0)
    fields = {"worker": "w", "seconds": 2.0, "prompt_tokens": len(text) // 4, "hashes": prefix.hashes, **more}
    return LogLine(time=f"2026-03-01T00:00:{second:02}.500Z", **fields)  # type: ignore[arg-type]


def rows(*lines: LogLine) -> list[Row]:
    return logged_rows(enumerate(lines, 1))


@given(st.integers(64, 5000))
def test_the_prefix_of_a_line_is_the_one_that_was_hashed(length: int) -> None:
    was = fingerprint(TEXT[:length], 0)
    read = prefix_of(was.hashes, length // 4, 1)
    assert (read.depths, read.hashes) == (was.depths, was.hashes)
    assert abs(read.tokens - was.tokens) <= 64


@given(st.integers(64, 5000), st.floats(0.3, 3.0))
def test_a_line_that_tells_the_prompts_bytes_needs_no_tokens_for_it(length: int, tokens_a_byte: float) -> None:
    was = fingerprint(TEXT[:length], 0)
    read = prefix_of(was.hashes, max(1, int(length * tokens_a_byte)), 1, length)
    assert (read.depths, read.hashes, read.tokens) == (was.depths, was.hashes, was.tokens)


def test_a_prompt_without_a_rung_is_like_no_other() -> None:
    assert prefix_of([], 3, 8).whole != prefix_of([], 3, 9).whole


def test_a_line_is_read_as_the_gateway_writes_it() -> None:
    event = Finished(
        "id", "/v1/chat/completions", "m", 200, worker="w", prompt_tokens=100, hashes=(1, 2**63), seconds=1
    )
    line = msgspec.json.decode(b'{"time":"2026-01-01T00:00:00.000Z",' + msgspec.json.encode(event)[1:], type=LogLine)
    (row,) = rows(line)
    assert list(row.item().names) == [1, 2**63]


def test_prompts_share_the_rungs_they_have_in_common_with_the_tokens_of_their_spans() -> None:
    one, other = (row.item() for row in rows(logged(TEXT[:1000]), logged(TEXT[:600] + b"-" * 400)))
    same = set(one.names) & set(other.names)
    assert len(same) == 3
    assert list(one.ends) == [16, 64, 128, 192]


def test_a_request_came_before_it_was_logged() -> None:
    late, early = rows(logged(TEXT, 10, seconds=9.0), logged(TEXT, 8, seconds=1.0))
    assert (late.at, early.at) == (0.0, 6.0)


def test_what_a_worker_reported_counts_where_it_did() -> None:
    (row,) = rows(logged(TEXT, prompt_tokens=2 * len(TEXT) // 4, output_tokens=7))
    assert (row.item().tokens, row.item().output) == (len(TEXT) // 2, 7)


def test_unknown_output_is_the_logs_own_mean() -> None:
    assert [row.item().output for row in rows(logged(TEXT, output_tokens=40), logged(TEXT))] == [40, 40]
    assert rows(logged(TEXT))[0].item().output == USUAL_OUTPUT


def test_what_no_worker_got_is_left_out() -> None:
    assert len(rows(logged(TEXT), logged(TEXT, worker=None), logged(TEXT, prompt_tokens=0))) == 1


@pytest.mark.parametrize("lines", [(), (logged(TEXT, hashes=None),), (logged(TEXT, worker=None),)])
def test_a_log_without_hashes_says_what_to_set(lines: tuple[LogLine, ...]) -> None:
    with pytest.raises(TraceError, match=r"log\.hashes: true"):
        rows(*lines)


@pytest.mark.parametrize("hashes", [None, [1] * 65])
def test_a_line_without_its_hashes_is_named(hashes: list[int] | None) -> None:
    with pytest.raises(TraceError, match="line 2: expected `hashes`"):
        rows(logged(TEXT), logged(TEXT, hashes=hashes))


@pytest.mark.parametrize(
    ("earlier", "later", "days"),
    [
        ("2026-02-28", "2026-03-01", 1),
        ("2024-02-28", "2024-03-01", 2),
        ("2025-12-31", "2026-01-01", 1),
        ("2026-01-01", "2027-01-01", 365),
    ],
)
def test_the_calendar_is_known(earlier: str, later: str, days: int) -> None:
    between = seconds_of(f"{later}T01:00:00Z", 1) - seconds_of(f"{earlier}T00:59:59.500Z", 1)
    assert between == days * 86_400 + 0.5


def test_what_is_no_time_is_said() -> None:
    with pytest.raises(TraceError, match="line 4: expected a time"):
        seconds_of("yesterday", 4)
