"""Where the processes meet, told without processes: lines over socket pairs, and ends that answer by hand."""

import asyncio
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.observe.snapshot import Snapshot, decode, encode
from router.processes.hub import Hub, Member, kept
from router.processes.messages import (
    BEGIN,
    CHANGE,
    COUNT,
    COUNTED,
    DECISIONS,
    DRAINED,
    LISTENING,
    PROCESSES,
    REFUSED,
    RELOAD,
    SETTINGS,
    WHOLE,
    Change,
    ProcessRow,
    decode_change,
    decode_in_flight,
    decode_lists,
    decode_outcome,
)
from router.reload import Outcome
from router.signals.line import Line
from router.signals.siblings import NEWS
from tests.support.gateway import eventually

REQUESTS = "prefix_router_requests"
CACHED = "prefix_router_cached_tokens"


class Process:
    """A process as the hub knows it: it counts, decides, hears changes and news; it may hang."""

    def __init__(self, hub: Hub, index: int, slot: int | None = None) -> None:
        self.member = Member(index, hub, slot)
        self.line = Line(self._told, self._answer)
        self.requests, self.workers = 0, ["a"]
        self.changes: list[Change] = []
        self.news: list[bytes] = []
        self.settings: list[bytes] = []
        self.refused: list[bool] = []
        self.drained: dict[str, int] = {}
        self.takes = True  # what it is handed
        self.awake = asyncio.Event()
        self.awake.set()

    async def start(self) -> "Process":
        ours, theirs = socket.socketpair()
        await self.member.line.open(ours)
        await self.line.open(theirs)
        return self

    def counted(self) -> bytes:
        sums = {REQUESTS: {("p",): [float(self.requests)]}, CACHED: {(each,): [1.0] for each in self.workers}}
        return encode(Snapshot(sums, {"in_flight": {(each,): [2.0] for each in self.workers}}, {CACHED: 0}))

    def _told(self, kind: str, content: bytes) -> None:
        if kind == CHANGE:
            self.changes.append(decode_change(content))
        elif kind == NEWS:
            self.news.append(content)
        elif kind == SETTINGS:
            self.settings.append(content)
        elif kind == REFUSED:
            self.refused.append(bool(content))

    async def _answer(self, kind: str, content: bytes) -> bytes:
        await self.awake.wait()
        if kind == CHANGE:
            self.changes.append(decode_change(content))
        elif kind == SETTINGS:
            if not self.takes:
                raise RuntimeError("it cannot take them")
            self.settings.append(content)
        elif kind == COUNT:
            self.line.tell(COUNTED, self.counted())
        elif kind == DECISIONS:
            return msgspec.msgpack.encode([{"request_id": f"r{self.member.index}"}])
        elif kind == DRAINED:
            return msgspec.msgpack.encode(self.drained)
        return b""

    async def ask(self, kind: str, content: bytes = b"") -> bytes:
        return await self.line.ask(kind, content, 5)

    async def in_flight(self) -> list[dict[str, int]]:
        """At the workers that drain, as each process says."""
        return list(map(decode_in_flight, decode_lists(await self.ask(DRAINED))))

    async def whole(self) -> Snapshot:
        return decode(await self.ask(WHOLE))

    async def die(self, hub: Hub) -> None:
        await self.line.close()
        await self.member.line.ended.wait()
        hub.leave(self.member)


class Crowd:
    def __init__(self) -> None:
        self.now = 0.0
        self.hub = Hub(lambda: self.now)
        self.all: list[Process] = []

    async def start(self, index: int, *, listens: bool = True) -> Process:
        process = await Process(self.hub, index).start()
        process.member.pid = 1000 + index
        self.hub.join(process.member)
        self.all.append(process)
        await process.ask(BEGIN)
        if listens:
            process.line.tell(LISTENING)
            await process.ask(BEGIN)
        return process


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    crowd = Crowd()
    yield crowd
    for process in crowd.all:
        await process.line.close()
        await process.member.line.close()


def change(kind: str, worker_id: str = "a") -> Change:
    return Change(kind, worker_id)  # type: ignore[arg-type]


def sent(kind: str, worker_id: str = "a") -> bytes:
    return msgspec.msgpack.encode(change(kind, worker_id))


async def test_a_scrape_is_the_sum_of_all_wherever_it_is_asked(crowd: Crowd) -> None:
    one, two = await crowd.start(0), await crowd.start(1)
    one.requests, two.requests = 3, 4
    for asked in (one, two):
        whole = await asked.whole()
        assert whole.sums[REQUESTS] == {("p",): [7.0]}
        assert whole.gauges["in_flight"] == {("a",): [4.0]}


async def test_what_was_shown_or_sent_stays_counted_when_a_process_ends(crowd: Crowd) -> None:
    one, two = await crowd.start(0), await crowd.start(1)
    two.requests = 4
    await one.whole()
    two.requests = 5
    two.line.tell(COUNTED, two.counted())
    await two.die(crowd.hub)
    assert (await one.whole()).total(REQUESTS) == 5
    successor = await crowd.start(1)
    successor.requests = 1
    whole = await one.whole()
    assert whole.total(REQUESTS) == 6
    assert whole.gauges["in_flight"] == {("a",): [4.0]}


async def test_a_process_that_hangs_is_shown_as_it_was_last_and_holds_up_one_scrape_only(crowd: Crowd) -> None:
    one, two = await crowd.start(0), await crowd.start(1)
    two.requests = 4
    await one.whole()
    two.awake.clear()
    two.requests = 9
    loop = asyncio.get_running_loop()
    for most in (1.5, 0.3):
        began = loop.time()
        assert (await one.whole()).total(REQUESTS) == 4
        assert loop.time() - began < most
    rows = msgspec.msgpack.decode(await one.ask(PROCESSES), type=list[ProcessRow])
    assert [(row.index, row.requests, row.answers) for row in rows] == [(0, 0, True), (1, 4, False)]
    two.awake.set()
    await asyncio.sleep(0.05)
    assert (await one.whole()).total(REQUESTS) == 9


async def test_a_worker_that_left_takes_the_series_of_those_that_ended_with_it(crowd: Crowd) -> None:
    one, two = await crowd.start(0), await crowd.start(1)
    two.workers = ["a", "b"]
    await one.whole()
    await two.die(crowd.hub)
    assert (await one.whole()).sums[CACHED] == {("a",): [2.0]}
    one.workers = []
    assert (await one.whole()).sums[CACHED] == {("a",): [1.0]}, "nobody knows a worker: no reason to forget"


async def test_every_process_is_listed(crowd: Crowd) -> None:
    one = await crowd.start(0)
    crowd.now = 5.0
    two = await crowd.start(1)
    crowd.now = 7.5
    one.requests = 3
    rows = msgspec.msgpack.decode(await two.ask(PROCESSES), type=list[ProcessRow])
    assert rows == [ProcessRow(0, 1000, 7.5, 3, 2), ProcessRow(1, 1001, 2.5, 0, 2)]


async def test_the_latest_decisions_come_from_all(crowd: Crowd) -> None:
    one, _ = await crowd.start(0), await crowd.start(1)
    lists = msgspec.msgpack.decode(await one.ask(DECISIONS), type=list[bytes])
    assert [msgspec.msgpack.decode(each) for each in lists] == [[{"request_id": "r0"}], [{"request_id": "r1"}]]


async def test_a_change_is_made_everywhere_before_it_is_answered(crowd: Crowd) -> None:
    one, two = await crowd.start(0), await crowd.start(1)
    await two.ask(CHANGE, sent("drain"))
    assert one.changes == two.changes == [change("drain")]


async def test_changes_are_made_in_one_order_everywhere(crowd: Crowd) -> None:
    one, two = await crowd.start(0), await crowd.start(1)
    asked = [each.ask(CHANGE, sent(kind, f"w{at}")) for at in range(20)
             for each, kind in ((one, "drain"), (two, "undrain"))]  # fmt: skip
    await asyncio.gather(*asked)
    assert len(one.changes) == 40
    assert one.changes == two.changes


async def test_a_change_waits_a_second_for_one_that_hangs_which_hears_it_later(crowd: Crowd) -> None:
    one, two = await crowd.start(0), await crowd.start(1)
    two.awake.clear()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await one.ask(CHANGE, sent("drain"))
    assert 0.9 < loop.time() - began < 2.0
    await one.ask(CHANGE, sent("undrain"))
    two.awake.set()
    await asyncio.sleep(0.05)
    assert one.changes == two.changes == [change("drain"), change("undrain")]


async def test_one_that_is_started_later_hears_all_changes_so_far_and_is_not_waited_for(crowd: Crowd) -> None:
    one = await crowd.start(0)
    await one.ask(CHANGE, sent("drain", "a"))
    await one.ask(CHANGE, sent("remove", "b"))
    late = await crowd.start(1, listens=False)
    assert late.changes == [change("drain", "a"), change("remove", "b")], "all of them before its first answer"
    late.awake.clear()
    began = asyncio.get_running_loop().time()
    await one.ask(CHANGE, sent("undrain", "a"))
    assert asyncio.get_running_loop().time() - began < 0.5
    await asyncio.sleep(0.01)
    assert late.changes[-1] == change("undrain", "a")


async def test_what_is_in_flight_where_workers_drain_is_asked_of_every_process_that_may_take_requests(
    crowd: Crowd,
) -> None:
    one, two = await crowd.start(0), await crowd.start(1)
    one.drained, two.drained = {"a": 3, "b": 0}, {"a": 1}
    assert await one.in_flight() == await two.in_flight() == [{"a": 3, "b": 0}, {"a": 1}]
    three = await crowd.start(2, listens=False)
    three.drained = {"a": 2}
    assert await one.in_flight() == [{"a": 3, "b": 0}, {"a": 1}, {"a": 2}], "it may have begun to listen already"
    crowd.hub.join(Member(3, crowd.hub))
    assert len(await one.in_flight()) == 3, "it hears of every change before it takes a request"


async def test_one_that_hangs_does_not_say_what_is_in_flight_until_it_wakes(crowd: Crowd) -> None:
    one, two = await crowd.start(0), await crowd.start(1)
    one.drained = two.drained = {"a": 0}
    two.awake.clear()
    for _ in range(2):
        assert await one.in_flight() == [{"a": 0}, {}]
    two.awake.set()
    await eventually(lambda: not two.member.line.hangs)
    assert await one.in_flight() == [{"a": 0}, {"a": 0}]
    await two.die(crowd.hub)
    assert await one.in_flight() == [{"a": 0}]


async def test_news_go_to_all_others(crowd: Crowd) -> None:
    one, two, three = [await crowd.start(at) for at in range(3)]
    one.line.tell(NEWS, b"x")
    two.line.tell(NEWS, b"y")
    await asyncio.sleep(0.05)
    assert (one.news, two.news, sorted(three.news)) == ([b"y"], [b"x"], [b"x", b"y"])
    assert crowd.hub.dropped == 0


KINDS = st.sampled_from(["add", "remove", "drain", "undrain"])


def state(changes: list[Change]) -> dict[str, tuple[object, bool]]:
    """Worker -> whether it was added or removed, and whether it is drained."""
    there: dict[str, object] = {}
    drained: set[str] = set()
    for each in changes:
        if each.kind in ("add", "remove"):
            there[each.worker_id] = each.kind
            drained -= {each.worker_id} if each.kind == "remove" else set()
        else:
            (drained.add if each.kind == "drain" else drained.discard)(each.worker_id)
    return {name: (there.get(name), name in drained) for name in {each.worker_id for each in changes}}


@given(st.lists(st.tuples(KINDS, st.sampled_from(["a", "b"])), max_size=20))
def test_what_is_kept_of_the_changes_comes_to_the_same(changes: list[tuple[str, str]]) -> None:
    all_of_them = [change(*each) for each in changes]
    some: list[Change] = []
    for each in all_of_them:
        some = kept(some, each)
    assert state(some) == state(all_of_them)
    assert len(some) <= len(all_of_them)


def test_the_same_over_and_over_does_not_pile_up() -> None:
    some: list[Change] = []
    for _ in range(50):
        for kind in ("add", "drain", "undrain", "remove"):
            some = kept(some, change(kind))
    assert some == [change("remove")]


async def test_a_reload_is_asked_of_the_parent_and_its_outcome_told(crowd: Crowd) -> None:
    asked: list[str] = []

    async def reload(why: str) -> Outcome:
        asked.append(why)
        return Outcome(("queue.max",))

    one = await crowd.start(0)
    crowd.hub.reload = reload
    assert decode_outcome(await one.ask(RELOAD)) == Outcome(("queue.max",))
    assert asked == ["POST /admin/reload"]


async def test_new_settings_are_handed_to_all_and_those_that_could_not_take_them_are_told(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.processes.hub.CHANGE_SECONDS", 0.2)
    good, bad, hanging = [await crowd.start(at) for at in range(3)]
    starting = await crowd.start(3, listens=False)
    bad.takes = False
    hanging.awake.clear()
    assert await crowd.hub.hand_out(b"new") == [bad.member]
    hanging.awake.set()
    await eventually(
        lambda: [each.settings for each in (good, bad, hanging, starting)] == [[b"new"], [], [b"new"], [b"new"]]
    )


async def test_all_know_whether_the_last_reload_was_refused_and_those_that_come_later(crowd: Crowd) -> None:
    one = await crowd.start(0)
    crowd.hub.mark(True)
    late = await crowd.start(1)
    await eventually(lambda: one.refused == late.refused == [True])
    crowd.hub.mark(False)
    await eventually(lambda: one.refused == late.refused == [True, False])
    assert (await crowd.start(2)).refused == []


async def test_a_process_and_its_successor_are_both_there(crowd: Crowd) -> None:
    old, new = await crowd.start(0), Process(crowd.hub, 0, slot=5)
    await new.start()
    crowd.all.append(new)
    crowd.hub.join(new.member)
    new.line.tell(LISTENING)
    await new.ask(BEGIN)
    old.member.leaving = True
    old.requests, new.requests = 3, 4
    assert (await new.whole()).total(REQUESTS) == 7
    rows = msgspec.msgpack.decode(await new.ask(PROCESSES), type=list[ProcessRow])
    assert [(row.index, row.leaving, row.requests) for row in rows] == [(0, True, 3), (0, False, 4)]
    await old.die(crowd.hub)
    assert (await new.whole()).total(REQUESTS) == 7


async def test_it_knows_when_each_was_last_heard(crowd: Crowd) -> None:
    one = await crowd.start(0)
    crowd.now = 5.0
    one.line.tell(COUNTED, one.counted())
    await eventually(lambda: one.member.heard_at == 5.0)
