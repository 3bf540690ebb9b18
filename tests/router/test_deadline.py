"""How long a request may take in all, step by step."""

from math import inf

import pytest

from router.deadline import LEAST_LEFT, left, line
from router.events import DeadlinePassed
from tests.support.stories import EVENT_HEAD, Desk
from tests.support.worker import event

TWO = [(b"x-request-timeout", b"2")]


def watched(desk: Desk) -> int:
    return len(desk.house.sweep)


async def test_its_time_runs_from_its_head_and_the_smaller_limit_counts() -> None:
    desk = Desk(timeouts={"total_seconds": 5})
    desk.now = 10.0
    assert desk.open(TWO)[0].deadline == 12.0
    assert desk.open([(b"x-request-timeout", b"7.5")])[0].deadline == 15.0
    assert desk.open()[0].deadline == 15.0
    assert Desk().open()[0].deadline == inf


async def test_only_a_request_with_a_limit_is_watched_and_only_while_it_lasts() -> None:
    desk = Desk()
    desk.ask()
    assert watched(desk) == 0
    desk.ask(headers=TWO)
    assert watched(desk) == 1
    desk.sent[1].answers()
    assert watched(desk) == 0


@pytest.mark.parametrize("phase", ["receiving", "waiting", "streaming"])
async def test_when_it_is_up_all_goes_back_and_no_worker_is_blamed(phase: str) -> None:
    desk = Desk()
    journey, sink = desk.open(TWO) if phase == "receiving" else desk.ask(headers=TWO)
    if phase == "streaming":
        desk.sent[0].answers(200, EVENT_HEAD, event("a"), end=False)
    journey.overdue(2.0)
    journey.overdue(3.0)
    assert desk.at_rest()
    assert watched(desk) == 0
    assert sink.status == {"receiving": 408, "waiting": 504, "streaming": 200}[phase]
    assert sink.told[-1] == ("abort" if phase == "streaming" else "end")
    assert [sent.connection.told for sent in desk.sent] == [["cancel"]] * len(desk.sent)
    assert [each.phase for each in desk.told(DeadlinePassed)] == [phase]
    assert desk.failures == []
    assert desk.finished.cut is (phase == "streaming")


async def test_what_is_left_is_never_nothing() -> None:
    """Some engines take 0 for no limit at all."""
    desk = Desk()
    journey, _ = desk.open(TWO)
    assert line(journey, 0.5) == b"x-request-timeout: 1.500\r\n"
    assert left(journey, 3.0) == LEAST_LEFT
    assert line(journey, 3.0) == b"x-request-timeout: 0.001\r\n"


async def test_the_client_s_own_header_is_replaced_on_the_way() -> None:
    desk = Desk()
    journey, _ = desk.open(TWO)
    desk.now = 0.75
    journey.feed(b'{"messages": []}')
    journey.complete()
    assert [each for each in desk.sent[0].lines() if b"timeout" in each] == [b"x-request-timeout: 1.250"]


@pytest.mark.parametrize("good", [b"3", b"3.", b"0.5", b".5", b" 4 ", b"0001"])
async def test_decimals_are_understood(good: bytes) -> None:
    assert Desk().open([(b"x-request-timeout", good)])[0].deadline == float(good)


@pytest.mark.parametrize("bad", [b"", b"0", b"00.0", b"-1", b"1e2", b"\xff", b"1 2", b"nan"])
async def test_anything_else_is_refused(bad: bytes) -> None:
    desk = Desk()
    _, sink = desk.open([(b"x-request-timeout", bad)])
    assert sink.status == 400
    assert desk.finished.code == "invalid_request"
    assert watched(desk) == 0


async def test_two_of_them_are_no_such_number() -> None:
    """Nobody would know which one counts."""
    desk = Desk()
    _, sink = desk.open([*TWO, (b"x-request-timeout", b"30")])
    assert sink.status == 400
    assert watched(desk) == 0
