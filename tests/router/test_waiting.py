"""When every worker is full: a place in the room is taken and given back, whatever happens in between."""

import asyncio

import pytest

from router.events import NoPlace, Queued
from tests.support.fleets import down
from tests.support.stories import Desk


def full(**settings: object) -> Desk:
    """A desk whose one worker is busy with its one request."""
    desk = Desk(1, each={"max_in_flight": 1}, **settings)
    desk.ask()
    return desk


async def test_it_goes_when_a_place_is_free() -> None:
    desk = full()
    _, sink = desk.ask()
    assert (len(desk.house.room), len(desk.sent)) == (1, 1)
    desk.now = 3.0
    desk.sent[0].answers()
    await asyncio.sleep(0)
    assert (len(desk.house.room), len(desk.sent)) == (0, 2)
    desk.sent[1].answers()
    assert sink.status == 200
    assert [(event.seconds, event.admitted) for event in desk.told(Queued)] == [(3.0, True)]


async def test_it_is_refused_when_its_time_is_up() -> None:
    desk = full(queue={"wait_seconds": 5})
    _, sink = desk.ask()
    desk.house.room.expire(4.9)
    assert sink.told == []
    desk.now = 5.0
    desk.house.room.expire(5.0)
    assert (sink.status, sink.headers[b"retry-after"]) == (429, b"1")
    assert [(event.seconds, event.admitted) for event in desk.told(Queued)] == [(5.0, False)]
    assert len(desk.house.room) == 0


async def test_it_is_refused_at_once_when_the_room_is_full() -> None:
    desk = full(queue={"max": 0})
    _, sink = desk.ask()
    assert sink.status == 429
    assert desk.told(Queued) == []


async def test_leaving_gives_the_place_back() -> None:
    desk = full()
    journey, sink = desk.ask()
    journey.cancel()
    assert len(desk.house.room) == 0
    assert sink.told == []
    assert [event.admitted for event in desk.told(Queued)] == [False]
    desk.sent[0].answers()
    await asyncio.sleep(0)
    assert len(desk.sent) == 1


async def test_one_that_a_policy_fails_on_is_not_in_the_way_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = full()
    failing, sink = desk.ask()
    behind, _ = desk.ask()

    def broken(now: float) -> None:
        raise RuntimeError("a policy's fault")

    monkeypatch.setattr(failing, "choose", broken)
    desk.sent[0].answers()
    await asyncio.sleep(0)
    assert sink.status == 500
    assert desk.sent[1].attempt.journey is behind
    assert [(event.how, event.admitted) for event in desk.told(Queued)] == [("no_worker", False), ("admitted", True)]


async def test_it_is_told_when_nobody_is_left_to_wait_for() -> None:
    desk = Desk(1, each={"max_in_flight": 1})
    desk.ask()
    _, sink = desk.ask()
    down(desk.fleet, desk.seats[0])
    desk.house.reconcile([])
    await asyncio.sleep(0)
    assert sink.status == 503
    assert len(desk.house.room) == 0


@pytest.mark.parametrize("count", [1, 3])
async def test_a_newcomer_goes_behind_those_that_were_told_in_this_turn(count: int) -> None:
    desk = full()
    waiting = [desk.ask()[0] for _ in range(count)]
    desk.sent[0].answers()
    newcomer, _ = desk.ask()
    assert desk.sent[1].attempt.journey is waiting[0]
    assert newcomer.ticket is not None
    assert len(desk.house.room) == count
    for _ in waiting:
        desk.sent[-1].answers()
        await asyncio.sleep(0)
    assert desk.sent[-1].attempt.journey is newcomer


def warm_and_full(**settings: object) -> tuple[Desk, bytes]:
    """w0 holds a long prompt and is full; what was learnt says that a place there comes soon."""
    desk = Desk(2, limits={"worker_in_flight": 1}, **settings)
    body = b'{"model": "m", "prompt": "' + b"word " * 4000 + b'"}'
    desk.ask(body, path="/v1/completions")
    desk.sent[0].answers()
    desk.ask(body, path="/v1/completions")
    for seat in desk.seats:
        seat.load.pace = 1000.0
    desk.house.patience.stayed("w0", 1.0)
    return desk, body


async def test_it_waits_for_its_warm_worker_and_takes_another_when_it_has_waited_long_enough() -> None:
    desk, body = warm_and_full()
    assert desk.chosen == ["w0", "w0"]
    journey, _ = desk.ask(body, path="/v1/completions")
    assert (len(desk.house.room), dict(desk.house.room.hoping)) == (1, {"w0": 1})
    assert journey.ticket is not None
    hope = journey.ticket.hope
    assert hope is not None
    desk.house.room.pump()
    assert len(desk.house.room) == 1
    desk.now = hope.until
    desk.house.room.pump()
    assert desk.chosen[-1] == "w1"
    assert [event.warm for event in desk.told(Queued)] == [False]
    assert not desk.house.room.hoping


async def test_it_gets_its_warm_worker_when_that_has_a_place() -> None:
    desk, body = warm_and_full()
    desk.ask(body, path="/v1/completions")
    desk.sent[1].answers()
    await asyncio.sleep(0)
    assert desk.chosen[-1] == "w0"
    assert [event.warm for event in desk.told(Queued)] == [True]


@pytest.mark.parametrize("cause", ["no room", "too little time", "no patience"])
async def test_it_goes_elsewhere_at_once_where_it_cannot_wait(cause: str) -> None:
    desk, body = warm_and_full(queue={"max": 0 if cause == "no room" else 10})
    if cause == "no patience":
        desk.house.room.wait_seconds = 1.0
    headers = [(b"x-request-timeout", b"1")] if cause == "too little time" else []
    desk.ask(body, headers, path="/v1/completions")
    assert desk.chosen[-1] == "w1"


async def test_when_the_limit_on_all_requests_is_reached_nobody_is_woken() -> None:
    desk = Desk(2, limits={"in_flight": 1})
    for _ in range(3):
        desk.ask()
    desk.house.room.pump()
    assert (len(desk.house.room), len(desk.sent)) == (2, 1)
    desk.sent[0].answers()
    await asyncio.sleep(0)
    assert (len(desk.house.room), len(desk.sent)) == (1, 2)


async def test_one_that_finds_no_place_is_told_by_its_priority() -> None:
    desk = full(queue={"max": 0, "open_priorities": True})
    desk.ask(headers=[(b"x-priority", b"3")])
    assert [event.priority for event in desk.told(NoPlace)] == [3]
