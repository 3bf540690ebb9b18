"""A rolling restart told without processes: lives that begin, listen, fail and end at the test's word."""

import asyncio
from typing import Any

import pytest

from router.clock import monotonic
from router.layers import load
from router.processes import renewal
from router.processes.hub import Hub, Member
from router.processes.messages import LEAVE
from router.processes.renewal import Renewal
from router.reload import Reloader, SettingsSource
from tests.support.gateway import eventually


class FakeLife:
    def __init__(self, member: Member) -> None:
        self.member = member
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.replaced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.killed = False

    def kill(self) -> None:
        self.killed = True


class Parent:
    """So many processes, all listening."""

    def __init__(self, count: int) -> None:
        self.hub = Hub(monotonic)
        self.told: list[tuple[int, str, bytes]] = []
        self.locks = [asyncio.Lock() for _ in range(count)]
        self.stopping = asyncio.Event()
        self.running: set[Any] = set()
        self.started: list[FakeLife] = []
        self.lives: dict[int, Any] = {}
        for index in range(count):
            self.lives[index] = self.start(index)
            self.lives[index].member.listens.set()
        self.started = []
        loaded = load([("test", {"shutdown": {"grace_seconds": 7}})], {})

        async def take(*_: Any) -> None:
            """All take them."""

        self.reloader = Reloader(SettingsSource(lambda: loaded), loaded, take, lambda _: None)
        self.renewal = Renewal(self, self.reloader)  # type: ignore[arg-type]

    def start(self, index: int) -> Any:
        life = FakeLife(Member(index, self.hub, len(self.running)))
        life.member.line.tell = lambda kind, content=b"": self.told.append((index, kind, content))  # type: ignore[method-assign]
        self.running.add(life)
        self.started.append(life)
        return life

    def end(self, life: FakeLife, why: str = "") -> None:
        self.running.discard(life)
        life.over.set_result(why)


async def test_one_after_the_other_is_started_and_listens_before_the_old_one_leaves() -> None:
    parent = Parent(2)
    old = dict(parent.lives)
    parent.renewal.begin()
    await eventually(lambda: len(parent.started) == 1)
    assert parent.told == []
    parent.started[0].member.listens.set()
    await eventually(lambda: len(parent.started) == 2)
    assert parent.told == [(0, LEAVE, b"7.0")]
    assert parent.lives == {0: parent.started[0], 1: old[1]}
    parent.started[1].member.listens.set()
    await eventually(lambda: len(parent.told) == 2)
    assert [life.member.leaving for life in old.values()] == [True, True]
    assert [life.replaced.done() for life in old.values()] == [True, True]
    assert [life.replaced.done() for life in parent.started] == [False, False]


async def test_when_a_successor_does_not_start_the_old_ones_stay(caplog: pytest.LogCaptureFixture) -> None:
    parent = Parent(2)
    old = dict(parent.lives)
    parent.renewal.begin()
    await eventually(lambda: parent.started)
    parent.end(parent.started[0], "exit status 1")
    await eventually(lambda: "the other processes stay" in caplog.text)
    assert parent.lives == old
    assert (parent.told, len(parent.started)) == ([], 1)


async def test_a_successor_that_never_listens_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "START_SECONDS", 0.05)
    parent = Parent(1)
    parent.renewal.begin()
    await eventually(lambda: parent.started and parent.started[0].killed)
    assert parent.told == []


async def test_only_so_many_are_leaving_at_one_time() -> None:
    parent = Parent(1)
    (old,) = parent.lives.values()
    parent.renewal.begin()
    await eventually(lambda: parent.started)
    parent.started[0].member.listens.set()
    await eventually(lambda: old.member.leaving)
    await eventually(lambda: not parent.renewal._tasks)
    parent.renewal.begin()
    await asyncio.sleep(0.05)
    assert len(parent.started) == 1, "there is no row for another one yet"
    parent.end(old)
    await eventually(lambda: len(parent.started) == 2)
    parent.started[1].member.listens.set()
    await eventually(lambda: not parent.renewal._tasks)


async def test_two_at_one_time_are_one(caplog: pytest.LogCaptureFixture) -> None:
    parent = Parent(1)
    parent.renewal.begin()
    await eventually(lambda: parent.started)
    parent.renewal.begin()
    await eventually(lambda: "under way" in caplog.text)
    parent.started[0].member.listens.set()
    await eventually(lambda: not parent.renewal._tasks)
    assert len(parent.started) == 1


async def test_once_all_are_new_what_was_wanted_runs() -> None:
    parent = Parent(1)
    wanted = load([("file", {"share": "redis://other"})], {})
    parent.reloader.wanted = wanted
    parent.renewal.begin()
    await eventually(lambda: parent.started)
    parent.started[0].member.listens.set()
    await eventually(lambda: not parent.renewal._tasks)
    assert parent.reloader.settings == wanted[0]


async def test_nothing_is_started_once_all_are_to_stop() -> None:
    parent = Parent(1)
    parent.stopping.set()
    parent.renewal.begin()
    await eventually(lambda: not parent.renewal._tasks)
    assert parent.started == []


async def test_one_that_is_only_starting_needs_no_successor() -> None:
    parent = Parent(1)
    parent.lives[0].member.listens.clear()
    parent.renewal.begin()
    await eventually(lambda: not parent.renewal._tasks)
    assert parent.started == []
