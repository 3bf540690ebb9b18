"""When every worker is full: a place in the room is taken and given back, whatever happens in between."""

import asyncio

import pytest

from router.events import Queued
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
