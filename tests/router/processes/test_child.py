"""One of several processes, in the test's own loop: what it says to a parent, and what it does at its word."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from ctypes import c_char
from multiprocessing import get_context
from typing import Any

import httpx
import msgspec
import pytest
import uvloop

from router.clock import monotonic
from router.layers import load
from router.observe.snapshot import decode
from router.processes.child import Child
from router.processes.hub import Hub, Member
from router.processes.life import Inheritance
from router.processes.listeners import bind
from router.processes.messages import (
    CUT,
    DECISIONS,
    DRAINED,
    LEAVE,
    REFUSED,
    SETTINGS,
    STOP,
    Change,
    decode_in_flight,
    encode,
    encode_settings,
)
from router.signals.load_table import Row, table_bytes
from router.signals.siblings import NEWS
from router.types import News, worker_from_url
from router.wiring import Gateway
from tests.support.client import PATIENCE
from tests.support.gateway import eventually
from tests.support.worker import Worker


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    return {"uvloop": uvloop.new_event_loop}


class Stand:
    """A child at a hub, in one loop."""

    def __init__(self, *urls: str, successor: bool = False, **settings: Any) -> None:
        given = {"workers": urls, "log": {"access": "none"}, "health": {"interval_seconds": 0.2}, **settings}
        made, origins = load([("test", given)], {})
        self.hub = Hub(monotonic)
        self.member = Member(0, self.hub)
        self.table = get_context("spawn").RawArray(c_char, table_bytes(2))
        self.sibling = Row(memoryview(self.table), 1, 2)
        self.ours, theirs = socket.socketpair()
        listener = bind("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        self.gateway = Gateway(made, origins)
        inherited = Inheritance(0, 2, 0, 2, "family", successor, made, origins, listener, theirs, self.table)
        self.child = Child(inherited, self.gateway)
        self.listener = listener

    async def start(self, *changes: Change, wait: bool = True) -> "Stand":
        await self.member.line.open(self.ours)
        for change in changes:
            self.hub._changes.append(change)
        self.hub.join(self.member)
        self.serving = asyncio.create_task(self.child._serve([self.listener]))
        if wait:
            await asyncio.wait_for(self.member.listens.wait(), PATIENCE)
        return self

    async def get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            return await client.get(f"http://127.0.0.1:{self.port}{path}")

    async def ended(self) -> None:
        await asyncio.wait_for(self.serving, PATIENCE)


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    worker = await Worker().listen()
    yield worker
    await worker.close()


async def test_it_knows_all_changes_before_it_listens() -> None:
    stand = await Stand().start(Change("add", "w", worker_from_url("http://127.0.0.1:1", id="w")), Change("drain", "w"))
    assert stand.gateway.fleet.seats["w"].health.state == "draining"
    assert stand.gateway.family == "family"
    stand.member.line.tell(CUT)
    await stand.ended()


async def test_it_counts_for_the_parent_now_and_then_when_asked_and_at_its_end() -> None:
    stand = await Stand().start()
    assert (await stand.get("/v1/models")).status_code == 200
    whole = decode(await stand.child._line.ask("whole", b"", 5))
    assert whole.total("prefix_router_requests") == 1
    assert "prefix_router_requests_total" in (await stand.get("/metrics")).text
    (row,) = (await stand.get("/admin/processes")).json()["processes"]
    assert (row["index"], row["requests"], row["answers"]) == (0, 1, True)
    await eventually(lambda: stand.member.counted.total("prefix_router_requests") == 1)
    await stand.get("/v1/models")
    stand.member.line.tell(STOP, b"0")
    await stand.ended()
    await stand.member.line.ended.wait()
    assert stand.member.counted.total("prefix_router_requests") == 2


async def test_what_is_in_flight_is_shared(worker: Worker) -> None:
    stand = await Stand(worker.url).start()
    row = stand.sibling
    row.name([worker.id])
    row.write([2.0, 1.0, 300.0], monotonic(), busy=True)
    await eventually(lambda: stand.gateway.fleet.seats[worker.id].load.elsewhere == 2)
    (shown,) = (await stand.get("/admin/workers")).json()["workers"]
    assert (shown["in_flight"], shown["outstanding_tokens"], shown["wait_tokens"]) == (2, 300, 300)
    lease = stand.gateway.fleet.seats[worker.id].load.charge(7.0, monotonic(), streaming=False)
    await eventually(lambda: row.read(monotonic()) == [1.0, 1.0, 7.0])
    lease.release()
    stand.member.line.tell(CUT)
    await stand.ended()


async def test_it_says_what_it_has_in_flight_where_a_worker_drains_and_shows_what_all_have(worker: Worker) -> None:
    stand = await Stand(worker.url).start()
    seats = stand.gateway.fleet.seats
    await eventually(lambda: worker.id in seats)
    lease = seats[worker.id].load.charge(7.0, monotonic(), streaming=False)
    asked = stand.member.line.ask
    assert decode_in_flight(await asked(DRAINED, b"", 5)) == {}
    await stand.child._line.ask("change", encode(Change("drain", worker.id)), 5)
    assert decode_in_flight(await asked(DRAINED, b"", 5)) == {worker.id: 1}
    silent = Member(1, stand.hub)
    stand.hub.join(silent)
    silent.serves = True
    for holds, shown in ((True, 2), (False, 1)):
        if not holds:
            lease.release()
        (row,) = (await stand.get("/admin/workers")).json()["workers"]
        assert (row["state"], row["in_flight"]) == ("draining", shown)
    stand.hub.leave(silent)
    (row,) = (await stand.get("/admin/workers")).json()["workers"]
    assert row["in_flight"] == 0
    stand.member.line.tell(CUT)
    await stand.ended()


async def test_news_go_out_and_come_in(worker: Worker) -> None:
    stand = await Stand(worker.url).start()
    told: list[bytes] = []
    hear = stand.hub.told
    stand.hub.told = lambda member, kind, content: (  # type: ignore[method-assign]
        told.append(content) if kind == NEWS else hear(member, kind, content)
    )
    await eventually(lambda: worker.id in stand.gateway.fleet.seats)
    stand.gateway.share().outbox.append(News(worker.id, 10.0, 10.0, [1]))
    await eventually(lambda: told)
    traffic = stand.gateway.fleet.seats[worker.id].load
    before = traffic.traffic
    stand.member.line.tell(NEWS, told[0])
    await eventually(lambda: traffic.traffic == before + 10.0)
    stand.member.line.tell(CUT)
    await stand.ended()


async def test_it_shows_its_decisions() -> None:
    stand = await Stand().start()
    assert msgspec.msgpack.decode(await stand.member.line.ask(DECISIONS, b"", 5)) == []
    stand.member.line.tell(CUT)
    await stand.ended()


async def test_at_the_parents_word_it_ends_gracefully_and_at_the_second_at_once() -> None:
    stand = await Stand().start()
    stand.member.line.tell(STOP, b"60")
    await eventually(lambda: stand.child.ending)
    assert (await stand.get("/readyz")).status_code == 503
    assert not stand.child.should_exit
    stand.member.line.tell(STOP, b"60")
    await asyncio.sleep(0.05)
    assert not stand.child.should_exit, "said twice is said once"
    stand.member.line.tell(CUT)
    await stand.ended()


async def test_signals_end_it_gracefully_however_many_come() -> None:
    stand = await Stand(shutdown={"grace_seconds": 60}).start()
    for _ in range(3):
        stand.child.handle_exit(signal.SIGTERM, None)
    await asyncio.sleep(0.05)
    assert stand.child.ending
    assert not stand.child.should_exit
    stand.member.line.tell(CUT)
    await stand.ended()


async def test_without_a_parent_it_ends() -> None:
    stand = await Stand(shutdown={"grace_seconds": 60}).start()
    await stand.member.line.close()
    await stand.ended()


async def test_if_the_parent_is_gone_before_it_serves_it_never_does() -> None:
    stand = Stand()
    stand.ours.close()
    stand.serving = asyncio.create_task(stand.child._serve([stand.listener]))
    await stand.ended()
    assert not stand.child.started
    stand.listener.close()


async def test_a_successor_listens_once_its_workers_have_been_asked(worker: Worker) -> None:
    stand = await Stand(worker.url, "http://127.0.0.1:1", successor=True).start()
    states = {name: seat.health.state.value for name, seat in stand.gateway.fleet.seats.items()}
    assert states[worker.id] == "ready"
    stand.member.line.tell(CUT)
    await stand.ended()


async def test_it_takes_new_settings_from_its_parent(worker: Worker) -> None:
    stand = await Stand().start()
    settings, origins = load([("file", {"workers": [worker.url], "queue": {"max": 7}, "share": "redis://other"})], {})
    await stand.member.line.ask(SETTINGS, encode_settings(settings, origins), 5)
    assert stand.gateway.house.room.most == 7
    assert set(stand.gateway.fleet.seats) == {worker.id}
    assert stand.gateway.settings.share is None, "only a new process can take this"
    shown = (await stand.get("/admin/config")).json()["settings"]
    assert {"path": "queue.max", "value": 7, "origin": "file"} in shown
    stand.member.line.tell(REFUSED, b"1")
    await eventually(lambda: stand.gateway.metrics.reload_failed)
    stand.member.line.tell(REFUSED, b"")
    await eventually(lambda: not stand.gateway.metrics.reload_failed)
    stand.member.line.tell(CUT)
    await stand.ended()


async def test_settings_that_come_before_it_serves_are_those_it_serves_by(worker: Worker) -> None:
    stand = Stand("http://127.0.0.1:1")
    settings, origins = load([("file", {"workers": [worker.url], "log": {"access": "none"}})], {})
    stand.hub.join(stand.member)
    await stand.member.line.open(stand.ours)
    stand.member.line.tell(SETTINGS, encode_settings(settings, origins))
    stand.serving = asyncio.create_task(stand.child._serve([stand.listener]))
    await asyncio.wait_for(stand.member.listens.wait(), PATIENCE)
    await eventually(lambda: set(stand.gateway.fleet.seats) == {worker.id})
    stand.member.line.tell(CUT)
    await stand.ended()


async def test_one_that_leaves_is_ready_answers_once_more_and_takes_no_new_connections() -> None:
    stand = await Stand().start()
    async with httpx.AsyncClient(trust_env=False, timeout=20, base_url=f"http://127.0.0.1:{stand.port}") as client:
        assert "connection" not in (await client.get("/readyz")).headers
        stand.member.line.tell(LEAVE, b"60")
        await eventually(lambda: stand.gateway.lane.terms.closing)
        answer = await client.get("/readyz")
        assert answer.json()["draining"] is False
        assert answer.headers["connection"] == "close"
        with pytest.raises(httpx.ConnectError):
            await client.get("/readyz")
    assert not stand.child.ending
    stand.member.line.tell(CUT)
    await stand.ended()


async def test_one_that_leaves_ends_by_itself_after_the_grace() -> None:
    stand = await Stand().start()
    stand.member.line.tell(LEAVE, b"0")
    await stand.ended()
