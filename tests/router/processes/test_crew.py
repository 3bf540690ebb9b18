"""All processes seen from one: alone it asks nobody; with a line it asks the parent, and says so when that is gone."""

import asyncio
import socket

import msgspec
import pytest

from router.core.health import PROBE_OK
from router.observe.snapshot import Snapshot, encode
from router.processes.crew import Unreached
from router.processes.messages import CHANGE, DECISIONS, DRAINED, PROCESSES, RELOAD, WHOLE, Change, ProcessRow
from router.processes.messages import encode as encode_message
from router.reload import Outcome
from router.sections.workers import WorkerSettings
from router.settings import Settings
from router.signals.line import Line
from router.wiring import Gateway
from tests.support.gateway import eventually

NAME = "127.0.0.1:1"
WORKER = WorkerSettings(
    url="http://user:pass@127.0.0.1:1/base", api_key="k", labels={"a": "b"}, kv_events="tcp://h:1"
).worker()  # type: ignore[arg-type]


@pytest.fixture
async def gateway() -> Gateway:
    return Gateway(Settings())


async def stop(gateway: Gateway) -> None:
    gateway.roster.remove(NAME)
    gateway.apply()
    gateway.house.close()


async def test_alone_it_makes_changes_itself(gateway: Gateway) -> None:
    crew, seats = gateway.crew, gateway.fleet.seats
    await crew.change(Change("add", NAME, WORKER))
    assert seats[NAME].worker == WORKER
    gateway.house.signal(seats[NAME], PROBE_OK)
    await crew.change(Change("drain", NAME))
    assert seats[NAME].health.state == "draining"
    await crew.change(Change("undrain", NAME))
    assert seats[NAME].health.state != "draining"
    await crew.change(Change("remove", NAME))
    assert not seats


async def test_alone_it_shows_itself(gateway: Gateway) -> None:
    crew = gateway.crew
    assert await crew.scrape() == gateway.metrics.scrape()
    assert await crew.decisions() == []
    (row,) = await crew.processes()
    assert (row.index, row.requests, row.in_flight, row.answers) == (0, 0, 0, True)
    crew.look()


async def test_one_that_is_drained_before_it_is_known_is_drained_once_it_is(gateway: Gateway) -> None:
    """A process that was just started hears of the drain before it learns of the worker."""
    crew, seats = gateway.crew, gateway.fleet.seats
    crew.make(Change("drain", NAME))
    crew.make(Change("add", NAME, WORKER))
    assert seats[NAME].health.state == "draining"
    crew.make(Change("remove", NAME))
    crew.make(Change("add", NAME, WORKER))
    assert seats[NAME].health.state == "starting"
    crew.make(Change("remove", NAME))
    crew.make(Change("drain", NAME))
    crew.make(Change("undrain", NAME))
    crew.make(Change("add", NAME, WORKER))
    assert seats[NAME].health.state == "starting"
    await stop(gateway)


async def test_a_drain_over_some_time_comes_to_its_end_by_itself(gateway: Gateway) -> None:
    crew, seats = gateway.crew, gateway.fleet.seats
    crew.make(Change("add", NAME, WORKER))
    gateway.house.signal(seats[NAME], PROBE_OK)
    crew.make(Change("drain", NAME, over_seconds=0.05))
    assert seats[NAME].health.state == "ready"
    assert seats[NAME].easing is not None
    await eventually(lambda: seats[NAME].health.state == "draining")
    assert seats[NAME].easing is None
    assert crew._handing_over == {}
    await stop(gateway)


@pytest.mark.parametrize("kind", ["undrain", "remove", "drain"])
async def test_a_drain_over_some_time_is_called_off(gateway: Gateway, kind: str) -> None:
    crew, seats = gateway.crew, gateway.fleet.seats
    crew.make(Change("add", NAME, WORKER))
    gateway.house.signal(seats[NAME], PROBE_OK)
    crew.make(Change("drain", NAME, over_seconds=0.1))
    crew.make(Change(kind, NAME))
    assert crew._handing_over == {}
    if kind == "drain":
        assert seats[NAME].health.state == "draining", "at once"
        crew.make(Change("undrain", NAME))
    elif kind == "remove":
        crew.make(Change("add", NAME, WORKER))
        gateway.house.signal(seats[NAME], PROBE_OK)
    await asyncio.sleep(0.3)
    assert seats[NAME].health.state != "draining"
    assert seats[NAME].easing is None
    await stop(gateway)


async def test_a_second_drain_over_some_time_counts_instead_of_the_first(gateway: Gateway) -> None:
    crew, seats = gateway.crew, gateway.fleet.seats
    crew.make(Change("add", NAME, WORKER))
    gateway.house.signal(seats[NAME], PROBE_OK)
    crew.make(Change("drain", NAME, over_seconds=0.05))
    crew.make(Change("drain", NAME, over_seconds=3600.0))
    await asyncio.sleep(0.2)
    assert seats[NAME].health.state != "draining"
    crew.make(Change("undrain", NAME))
    await stop(gateway)


async def test_a_process_that_does_not_know_the_worker_yet_drains_it_once_it_does(gateway: Gateway) -> None:
    crew, seats = gateway.crew, gateway.fleet.seats
    crew.make(Change("drain", NAME, over_seconds=5.0))
    crew.make(Change("add", NAME, WORKER))
    assert seats[NAME].health.state == "draining"
    await stop(gateway)


async def test_with_a_line_it_asks_the_parent(gateway: Gateway) -> None:
    asked: list[tuple[str, bytes]] = []
    whole = Snapshot({"prefix_router_requests": {("/p", "m", "200"): [41.0]}}, {"queued": {(): [3.0]}})
    row = ProcessRow(1, 7, 1.5, 2, 3)
    old, new = {"age_seconds": 2.0}, {"age_seconds": 1.0}
    answers = {
        CHANGE: b"", RELOAD: encode_message(Outcome(("queue.max",))), WHOLE: encode(whole),
        PROCESSES: msgspec.msgpack.encode([row]),
        DECISIONS: msgspec.msgpack.encode([msgspec.msgpack.encode([old]), msgspec.msgpack.encode([new])]),
    }  # fmt: skip

    async def answer(kind: str, content: bytes) -> bytes:
        asked.append((kind, content))
        return answers[kind]

    ours, theirs = socket.socketpair()
    parent = await Line(lambda kind, content: None, answer).open(theirs)
    crew = gateway.crew
    crew.line = await Line(lambda kind, content: None, answer).open(ours)
    await crew.change(Change("drain", "w"))
    assert asked == [(CHANGE, msgspec.msgpack.encode(Change("drain", "w")))]
    text = (await crew.scrape()).decode()
    assert 'prefix_router_requests_total{code="200",model="m",path="/p"} 41.0' in text
    assert "prefix_router_queued 3.0" in text
    assert await crew.decisions() == [new, old]
    assert await crew.processes() == [row]
    assert await crew.reload() == Outcome(("queue.max",))
    await parent.close()
    change = crew.change(Change("drain", "w"))
    for coroutine in (change, crew.scrape(), crew.decisions(), crew.processes(), crew.reload()):
        with pytest.raises(Unreached):
            await coroutine


async def test_what_is_in_flight_at_a_worker_that_drains_is_counted_in_all_processes(gateway: Gateway) -> None:
    """One that does not say that it drains there may still send a request; so may those behind a silent parent."""
    crew, seats = gateway.crew, gateway.fleet.seats
    crew.make(Change("add", NAME, WORKER))
    lease = seats[NAME].load.charge(1.0, 0.0, streaming=False)
    assert await crew.draining() == {}
    crew.make(Change("drain", NAME))
    assert await crew.draining() == {NAME: 1}
    said = [{NAME: 1}, {NAME: 2, "other": 5}, {"other": 0}]

    async def answer(kind: str, content: bytes) -> bytes:
        assert kind == DRAINED
        return encode_message([encode_message(each) for each in said])

    ours, theirs = socket.socketpair()
    parent = await Line(lambda kind, content: None, answer).open(theirs)
    crew.line = await Line(lambda kind, content: None, answer).open(ours)
    assert await crew.draining() == {NAME: 4}
    said.pop()
    assert await crew.draining() == {NAME: 3}
    await parent.close()
    assert await crew.draining() == {NAME: 2}
    lease.release()
    await stop(gateway)


async def test_one_that_was_given_its_settings_cannot_read_them_again(gateway: Gateway) -> None:
    assert (await gateway.crew.reload()).faults == ("this gateway was given its settings and cannot read them again",)
