"""The watch over workers, with a clock set by hand: when it looks, whom it finds, and what it leaves alone."""

from typing import Any

import pytest

from router.core.health import PROBE_OK
from router.core.patience import Hope
from router.core.queue import Ticket, Woken
from router.events import WorkerChanged
from router.proxy.resolve import Name
from router.watching import STOOD_STILL, RoomWatch
from tests.support.client import HELLO, STREAM
from tests.support.stories import Desk

STALL = 10.0


class Line:
    """A pool that says what its connections would."""

    def __init__(self, desk: Desk, worker: str) -> None:
        self.reads = 0
        self.waiting: dict[object, None] = {}
        self.turned_away = False
        self.silent = True  # False: the clients do not read, or none was sent
        self._desk, self._worker = desk, worker

    def unanswered(self) -> list[tuple[float, Any]]:
        sent = [each.attempt for each in self._desk.sent if each.worker == self._worker]
        return [(attempt.lease.since, attempt) for attempt in sent if self.silent]

    def turn_away(self) -> None:
        self.turned_away = True

    def close(self) -> None:
        """Nothing is open."""


class Round:
    """A desk whose watch looks every second."""

    def __init__(self, workers: int = 3, **health: Any) -> None:
        self.desk = Desk(workers, health={"stall_seconds": STALL, **health})
        self.house = self.desk.house
        self.lines = {}
        for seat in self.desk.seats:
            seat.load.learn_pace(100_000.0, 1.0)
            line = self.lines[seat.id] = Line(self.desk, seat.id)
            self.house._pools[seat] = line  # type: ignore[assignment]
        self.look()

    def look(self, seconds: float = 0.0) -> None:
        for _ in range(int(seconds)):
            self.desk.now += 1.0
            self.house.watch.overdue(self.desk.now)

    def state(self, name: str = "w0") -> str:
        return self.desk.fleet.seats[name].health.state.value

    def causes(self) -> list[tuple[str, str]]:
        return [(each.worker, each.cause) for each in self.desk.told(WorkerChanged) if each.after == "down"]


@pytest.fixture
async def round_(monkeypatch: pytest.MonkeyPatch) -> Round:
    monkeypatch.setattr("router.proxy.sweep.Sweep.__len__", lambda _: 2)  # some connection is there
    return Round()


async def test_a_worker_that_is_silent_for_long_enough_is_stalled(round_: Round) -> None:
    round_.desk.ask(STREAM)
    round_.look(STALL - 1)
    assert round_.state() == "ready"
    round_.look(2)
    assert round_.causes() == [("w0", "stalled")]
    assert round_.lines["w0"].turned_away
    assert not round_.lines["w1"].turned_away


async def test_whatever_comes_shows_that_it_lives(round_: Round) -> None:
    round_.desk.ask(STREAM)
    for _ in range(10):
        round_.look(STALL - 2)
        round_.lines["w0"].reads += 1
    assert round_.causes() == []


async def test_requests_that_nobody_was_sent_show_nothing(round_: Round) -> None:
    round_.desk.ask(STREAM)
    round_.lines["w0"].silent = False
    round_.look(20 * STALL)
    assert round_.causes() == []


async def test_answers_in_one_piece_have_longer(round_: Round) -> None:
    round_.desk.ask(HELLO)
    round_.look(4 * STALL - 1)
    assert round_.state() == "ready"
    round_.look(2)
    assert round_.state() == "down"


async def test_while_it_is_silent_it_is_held_anew_and_then_it_comes_back_by_trial(round_: Round) -> None:
    round_.desk.ask(STREAM)
    seat = round_.desk.fleet.seats["w0"]
    for _ in range(60):
        round_.look(1)
        round_.house.signal(seat, PROBE_OK, "probe")
    assert round_.causes() == [("w0", "stalled")]
    assert seat.health.ejections > 2
    round_.desk.sent[0].answers()
    for _ in range(60):
        round_.look(1)
        round_.house.signal(seat, PROBE_OK, "probe")
    assert round_.state() == "trial"


async def test_time_in_which_this_process_stood_still_is_nobodys_silence(round_: Round) -> None:
    round_.desk.ask(STREAM)
    round_.look(2)
    round_.desk.now += 100 * STOOD_STILL
    round_.look(1)
    assert round_.state() == "ready"
    round_.look(STALL)
    assert round_.state() == "down"


async def test_outliers_are_told_with_their_cause(round_: Round) -> None:
    seat = round_.desk.fleet.seats["w2"]
    seat.failed += 20
    round_.look(1)
    assert round_.causes() == [("w2", "error_share")]


async def test_it_ends_when_no_connection_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Round().house.watch
    sweep = watch.house.sweep
    sweep.watch(watch)
    watch.overdue(5.0)
    assert len(sweep) == 0
    assert sweep._timer is not None
    sweep._timer.cancel()


@pytest.mark.parametrize(
    ("stall", "window", "every"), [(30.0, 30.0, 1.0), (2.0, 30.0, 0.2), (0, 4.0, 0.4), (0.2, 30.0, 0.1)]
)
async def test_it_looks_often_enough_for_what_it_looks_for(stall: float, window: float, every: float) -> None:
    watch = Round(stall_seconds=stall, outliers={"window_seconds": window}).house.watch
    watch.house.sweep.watch = lambda _: None  # type: ignore[method-assign]
    assert watch._every == pytest.approx(every)


async def test_a_name_that_moved_took_the_caches_of_its_workers_with_it(round_: Round) -> None:
    house, lost = round_.house, []
    house.mind.lost = lambda seat: lost.append(seat.id)  # type: ignore[method-assign]
    name = Name("w1", house.resolver)
    name.preferred = "10.0.0.1"
    house.watch.moved(name, frozenset({"10.0.0.2"}))
    assert lost == [], "what served is still there"
    house.watch.moved(name, frozenset({"10.0.0.1"}))
    assert lost == ["w1"]


async def test_one_that_waited_for_a_worker_of_its_choice_is_woken_before_its_time_is_up() -> None:
    desk, told = Desk(1), []
    room = desk.house.room
    room.wait_seconds = 5.0

    def wake() -> Woken:
        told.append("woken")
        room.leave(ticket, 5.05, served=True)
        return Woken.GONE

    ticket = Ticket(wake, lambda refusal, how: told.append(how), hope=Hope("w0", 4.99))
    room.enter(ticket, 0.0)
    RoomWatch(room, desk.house.sweep).overdue(5.05)
    assert told == ["woken"], "another worker has room for it"


async def test_the_room_is_watched_while_somebody_is_in_it() -> None:
    desk = Desk(1)
    watch = RoomWatch(desk.house.room, desk.house.sweep)
    desk.house.sweep.watch(watch)
    watch.overdue(0.0)
    assert len(desk.house.sweep) == 0
    assert desk.house.sweep._timer is not None
    desk.house.sweep._timer.cancel()
