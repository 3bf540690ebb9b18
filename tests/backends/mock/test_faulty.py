"""Answers that go wrong, written to an answer that notes what it is told."""

import gzip
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from backends.http import Headers
from backends.mock.faults import rules_from
from backends.mock.faulty import FaultyAnswer, Line

EVENTS = [b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n"]


class Noting:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def when_over(self, callback: Callable[[bool], None]) -> None: ...

    def head(self, status: int, headers: Headers, length: int | None = None) -> None:
        self.told.append(("head", dict(headers).get("content-encoding"), length))

    def send(self, events: Sequence[bytes]) -> None:
        self.told.extend(events)

    def end(self) -> None:
        self.told.append("end")

    def cut(self) -> None:
        self.told.append("cut")

    def reset(self) -> None:
        self.told.append("reset")


def answer_with(fake_time: Any, **effects: Any) -> tuple[FaultyAnswer, Noting]:
    inner = Noting()
    return FaultyAnswer(inner, rules_from({"gap": 0, **effects})[0], fake_time.later), inner  # type: ignore[arg-type]


def stream(fake_time: Any, **effects: Any) -> list[Any]:
    answer, inner = answer_with(fake_time, **effects)
    answer.head(200, [])
    answer.send(EVENTS)
    answer.end()
    fake_time.pass_to(fake_time.moment + 1000)
    return inner.told


HEAD = ("head", None, None)


@pytest.mark.parametrize("kind", ["cut", "reset"])
@pytest.mark.parametrize(
    ("point", "sent"),
    [("head", 0), (0, 0), (1, 1), (3, 3), ("done", 2)],
)
def test_a_stream_breaks_off_where_it_is_told(fake_time: Any, kind: str, point: Any, sent: int) -> None:
    assert stream(fake_time, **{kind: point}) == [HEAD, *EVENTS[:sent], kind]


def test_half_an_event_is_half_an_event(fake_time: Any) -> None:
    assert stream(fake_time, cut=1.5) == [HEAD, EVENTS[0], EVENTS[1][: len(EVENTS[1]) // 2], "cut"]


def test_one_that_hangs_stays_open(fake_time: Any) -> None:
    assert stream(fake_time, hang=1) == [HEAD, EVENTS[0]]


def test_slow_events_come_one_by_one_in_order(fake_time: Any) -> None:
    answer, inner = answer_with(fake_time, gap=2)
    answer.head(200, [])
    answer.send(EVENTS)
    answer.end()
    seen = []
    for moment in (1, 3, 5, 7):
        fake_time.pass_to(moment)
        seen.append(len(inner.told))
    assert seen == [1, 2, 3, 5]
    assert inner.told == [HEAD, *EVENTS, "end"]


@pytest.mark.parametrize(("off", "declared"), [(7, 10), (-2, 1), (-9, 0)])
def test_a_wrong_length_is_off_by_so_much_and_closes(fake_time: Any, off: int, declared: int) -> None:
    answer, inner = answer_with(fake_time, length=off)
    answer.whole(200, [], b"abc")
    fake_time.pass_to(1)
    assert inner.told == [("head", None, declared), b"abc", "cut"]


@pytest.mark.parametrize(("off", "declared"), [(7, 1_000_007), (-7, 57)])
def test_a_stream_with_a_wrong_length_pretends_to_have_one(fake_time: Any, off: int, declared: int) -> None:
    assert stream(fake_time, length=off) == [("head", None, declared), *EVENTS, "cut"]


def test_compressed_answers_come_back_whole(fake_time: Any) -> None:
    """In one piece with the wire's length, and as a stream whose events can be read as they come."""
    answer, inner = answer_with(fake_time, gzip=True)
    answer.whole(200, [], b"abc")
    fake_time.pass_to(1)
    assert inner.told[0] == ("head", "gzip", len(inner.told[1]))
    assert gzip.decompress(inner.told[1]) == b"abc"
    told = stream(fake_time, gzip=True)
    assert gzip.decompress(b"".join(told[1:-1])) == b"".join(EVENTS)


def test_single_bytes_are_sent_singly_and_lose_nothing(fake_time: Any) -> None:
    told = stream(fake_time, split=1)
    assert b"".join(told[1:-1]) == b"".join(EVENTS)
    assert all(len(piece) == 1 for piece in told[1:-1])


def test_oddities_go_together(fake_time: Any) -> None:
    told = stream(fake_time, crlf=True, no_space=True, cut="done")
    assert told == [HEAD, b"data:1\r\n\r\n", b"data:2\r\n\r\n", "cut"]


def test_a_line_keeps_order_and_forgets_on_demand(fake_time: Any) -> None:
    done: list[Any] = []
    line = Line(fake_time.later)
    line.then(lambda: done.append(1))
    line.then(lambda: done.append(2), 5)
    line.then(lambda: done.append(3))
    assert done == [1]
    fake_time.pass_to(5)
    assert done == [1, 2, 3]
    line.then(lambda: done.append(json), 5)
    line.clear()
    fake_time.pass_to(20)
    assert done == [1, 2, 3]
