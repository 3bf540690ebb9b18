"""When every worker is full: requests wait in order, within limits, and give their places back."""

import asyncio
import json
from typing import Any

import pytest

from router.events import Queued
from tests.support.client import CHAT, HELLO, STREAM, Client, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import Answer, Seen, Worker, reply, stream

BOTH = pytest.mark.parametrize("body", [HELLO, STREAM], ids=["plain", "streaming"])


async def one_at_a_time(stage: Stage, **settings: Any) -> tuple[Running, Worker, list[asyncio.Event]]:
    """A worker that takes one request, and a gate for each that it is sent."""
    gates: list[asyncio.Event] = []

    def gated(_: Seen) -> Answer:
        gates.append(asyncio.Event())
        return stream(gates[-1], b"data: [DONE]\n\n")

    worker = await stage.worker(answer=gated)
    return await stage.gateway({"url": worker.url, "max_in_flight": 1}, **settings), worker, gates


def numbered(at: int) -> bytes:
    return b'{"model": "m", "prompt": "%d"}' % at


async def test_requests_wait_and_go_in_the_order_they_came(stage: Stage) -> None:
    running, worker, gates = await one_at_a_time(stage)
    asking = []
    for at in range(5):
        asking.append(asyncio.ensure_future(ask(running.port, post(numbered(at)))))
        await eventually(lambda at=at: len(running.house.room) == at if at else worker.running)
    assert worker.most_at_once == 1
    assert (await running.metrics())["prefix_router_queued"] == 4
    for at in range(5):
        await eventually(lambda at=at: len(gates) == at + 1)
        gates[at].set()
    assert [(await each).status for each in asking] == [200] * 5
    assert [json.loads(body)["prompt"] for body in worker.bodies] == list("01234")
    assert worker.most_at_once == 1
    assert [event.admitted for event in running.told(Queued)] == [True] * 4


async def test_a_newcomer_does_not_overtake_those_that_wait(stage: Stage) -> None:
    """It comes in the very turn of the loop in which a place is free, before those that wait were told."""
    running, worker, gates = await one_at_a_time(stage)
    house, freed = running.house, running.house.freed
    clients = [await stage.client(running) for _ in range(2)]
    await clients[0].send(post(numbered(0)))
    await eventually(lambda: worker.running == 1)
    await clients[1].send(post(numbered(1)))
    await eventually(lambda: len(house.room) == 1)
    newcomers = []

    def freed_and_asked_at_once() -> None:
        freed()
        if not newcomers:
            newcomers.append(sink := Deaf())
            story = house.open(house.paths[CHAT.encode()], CHAT.encode(), [], sink)
            story.begin([])
            story.feed(numbered(2))
            story.complete()

    house.freed = freed_and_asked_at_once  # type: ignore[method-assign]
    gates[0].set()
    for at in (1, 2):
        await eventually(lambda at=at: len(gates) == at + 1)
        gates[at].set()
    for client in clients:
        assert (await client.answer()).status == 200
    await eventually(lambda: len(running.finished) == 3)
    assert [json.loads(body)["prompt"] for body in worker.bodies] == list("012")


class Deaf:
    peer = ""
    """A sink for an answer that nobody reads."""

    def head(self, status: int, headers: list[tuple[bytes, bytes]], length: int | None) -> None: ...
    def body(self, data: bytes) -> None: ...
    def flush(self) -> None: ...
    def end(self) -> None: ...
    def abort(self) -> None: ...


@BOTH
async def test_a_full_queue_refuses_at_once(stage: Stage, body: bytes) -> None:
    running, worker, gates = await one_at_a_time(stage, queue={"max": 1})
    first, second = [asyncio.ensure_future(ask(running.port, post())) for _ in range(2)]
    await eventually(lambda: worker.running == 1 and len(running.house.room) == 1)
    answer = await ask(running.port, post(body))
    assert (answer.status, answer.code) == (429, "overloaded")
    assert int(answer.one("retry-after") or 0) >= 1
    assert answer.json()["error"]["type"] == "rate_limit_error"
    for at in range(2):
        await eventually(lambda at=at: len(gates) == at + 1)
        gates[at].set()
    assert [(await first).status, (await second).status] == [200, 200]


async def test_no_queue_at_all_is_a_choice(stage: Stage) -> None:
    running, worker, gates = await one_at_a_time(stage, queue={"max": 0})
    first = asyncio.ensure_future(ask(running.port, post()))
    await eventually(lambda: worker.running == 1)
    assert (await ask(running.port, post())).status == 429
    gates[0].set()
    assert (await first).status == 200


@BOTH
async def test_one_that_waits_too_long_is_refused(stage: Stage, body: bytes) -> None:
    running, worker, gates = await one_at_a_time(stage, queue={"wait_seconds": 0.2})
    first = asyncio.ensure_future(ask(running.port, post()))
    await eventually(lambda: worker.running == 1)
    answer = await ask(running.port, post(body))
    assert (answer.status, answer.code) == (429, "overloaded")
    assert answer.one("retry-after")
    gates[0].set()
    assert (await first).status == 200
    assert worker.started == 1
    metrics = await running.metrics()
    assert metrics['prefix_router_rejected_total{code="overloaded"}'] == 1
    assert metrics["prefix_router_queue_seconds_count"] == 1


async def test_places_of_those_who_left_are_free_at_once(stage: Stage) -> None:
    """Four run, four wait, all leave; the next is admitted at once."""
    worker = await stage.worker(answer=reply(stop=-1, ending="hang"))
    running = await stage.gateway({"url": worker.url, "max_in_flight": 4}, queue={"max": 4})
    clients: list[Client] = [await stage.client(running) for _ in range(8)]
    for client in clients:
        await client.send(post())
    await eventually(lambda: worker.running == 4 and len(running.house.room) == 4)
    for client in reversed(clients):
        client.drop()
    await eventually(lambda: worker.aborted == worker.started and not len(running.house.room))
    worker.answer = reply()
    assert (await ask(running.port, post())).status == 200


async def test_the_limit_on_all_requests_together_holds(stage: Stage) -> None:
    gate = asyncio.Event()
    workers = [await stage.worker(answer=lambda _: stream(gate, b"x")) for _ in range(3)]
    running = await stage.gateway(*workers, limits={"in_flight": 4})
    asking = [asyncio.ensure_future(ask(running.port, post(numbered(at)))) for at in range(10)]
    await eventually(lambda: len(running.house.room) == 6)
    assert sum(worker.running for worker in workers) == 4
    gate.set()
    assert [(await each).status for each in asking] == [200] * 10


async def test_a_full_worker_is_passed_over_for_one_with_room(stage: Stage) -> None:
    gate = asyncio.Event()
    workers = [await stage.worker(answer=lambda _: stream(gate, b"x")) for _ in range(2)]
    running = await stage.gateway(*[{"url": worker.url, "max_in_flight": 2} for worker in workers])
    asking = [asyncio.ensure_future(ask(running.port, post(STREAM))) for _ in range(4)]
    await eventually(lambda: [worker.running for worker in workers] == [2, 2])
    gate.set()
    assert {(await each).status for each in asking} == {200}


async def test_those_that_wait_for_one_model_hold_up_no_other(stage: Stage) -> None:
    gate = asyncio.Event()
    full = await stage.worker(models=("full",), answer=lambda _: stream(gate, b"x"))
    free = await stage.worker(models=("free",))
    running = await stage.gateway(*[{"url": worker.url, "max_in_flight": 1} for worker in (full, free)])
    waiting = [asyncio.ensure_future(ask(running.port, post(b'{"model": "full"}'))) for _ in range(3)]
    await eventually(lambda: len(running.house.room) == 2)
    for _ in range(3):
        assert (await ask(running.port, post(b'{"model": "free"}'))).status == 200
    gate.set()
    assert [(await each).status for each in waiting] == [200] * 3


async def test_those_that_wait_are_told_when_the_last_worker_goes(stage: Stage) -> None:
    running, worker, gates = await one_at_a_time(stage)
    first = asyncio.ensure_future(ask(running.port, post()))
    await eventually(lambda: worker.running == 1)
    second = asyncio.ensure_future(ask(running.port, post()))
    await eventually(lambda: len(running.house.room) == 1)
    assert (await ask(running.port, drain(worker))).status == 200
    answer = await second
    assert (answer.status, answer.code) == (503, "no_ready_worker")
    gates[0].set()
    assert (await first).status == 200


def drain(worker: Worker) -> bytes:
    return post(b"", f"/admin/workers/{worker.id}/drain")


async def test_those_that_wait_go_to_a_worker_that_joins(stage: Stage) -> None:
    running, worker, gates = await one_at_a_time(stage)
    first = asyncio.ensure_future(ask(running.port, post()))
    await eventually(lambda: worker.running == 1)
    second = asyncio.ensure_future(ask(running.port, post()))
    await eventually(lambda: len(running.house.room) == 1)
    joining = await stage.worker()
    added = await ask(running.port, post(json.dumps({"url": joining.url}).encode(), "/admin/workers"))
    assert added.status == 201
    assert (await second).one("x-router-worker") == joining.id
    gates[0].set()
    assert (await first).status == 200
