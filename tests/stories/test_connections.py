"""A limit on the connections to a worker: further requests wait for one, and no place is ever lost."""

import asyncio
from random import Random

import pytest

from router.core.health import PROBE_FAILED
from tests.support.client import HELLO, STREAM, Client, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, Answer, Seen, Worker, event, reply, stream

LIMIT = 10
STORM_SECONDS = 3.0


def waiting(running: Running, worker: Worker) -> int:
    return len(running.house.pool(running.seat(worker)).waiting)


def places(running: Running, worker: Worker) -> int:
    return len(running.house.pool(running.seat(worker))._open)


@pytest.mark.parametrize("whose", ["all", "its own"])
async def test_many_at_once_share_the_connections_and_all_are_served(stage: Stage, whose: str) -> None:
    worker = await stage.worker(answer=lambda _: reply(delay=0.05))
    if whose == "all":
        running = await stage.gateway(worker, connections={"per_worker": LIMIT})
    else:
        own = {"url": worker.url, "max_connections": LIMIT}
        running = await stage.gateway(own, connections={"per_worker": 1})
    answers = await asyncio.gather(*(ask(running.port, post()) for _ in range(60)))
    assert {answer.status for answer in answers} == {200}
    assert worker.most_at_once == LIMIT
    assert worker.accepted <= LIMIT + 3, "and the probes have their own"


async def test_those_that_wait_count_as_in_flight_and_may_leave(stage: Stage) -> None:
    gate = asyncio.Event()
    worker = await stage.worker(answer=lambda _: stream(event("1"), gate, DONE))
    running = await stage.gateway(worker, connections={"per_worker": 1})
    first = await stage.client(running)
    await first.send(post(STREAM))
    await first.head()
    clients = [await stage.client(running) for _ in range(5)]
    for client in clients:
        await client.send(post(STREAM))
    await eventually(lambda: waiting(running, worker) == 5)
    assert running.seat(worker).load.in_flight == 6
    assert (await running.metrics())[f'prefix_router_in_flight{{worker="{worker.id}"}}'] == 6
    for client in clients[:3]:
        client.drop()
    await eventually(lambda: waiting(running, worker) == 2)
    assert running.seat(worker).load.in_flight == 3
    gate.set()
    for client in clients[3:]:
        assert (await client.answer()).whole
    assert len(worker.requests) == 3, "those that left were never sent"


async def test_no_limit_on_the_worker_runs_while_a_request_waits(stage: Stage) -> None:
    """Neither that on connecting nor that on the first byte: it was sent nowhere yet."""
    worker = await stage.worker(answer=lambda _: reply(delay=0.6))
    running = await stage.gateway(
        worker, connections={"per_worker": 1}, timeouts={"connect_seconds": 0.3, "first_byte_seconds": 2.0}
    )
    answers = await asyncio.gather(*(ask(running.port, post()) for _ in range(5)))
    assert [answer.status for answer in answers] == [200] * 5


async def test_probes_do_not_wait_behind_requests(stage: Stage) -> None:
    gate = asyncio.Event()
    worker = await stage.worker(answer=lambda _: stream(gate, DONE))
    health = {"interval_seconds": 0.1, "timeout_seconds": 1.0}
    running = await stage.gateway(worker, connections={"per_worker": 1}, health=health)
    clients = [await stage.client(running) for _ in range(3)]
    for client in clients:
        await client.send(post(STREAM))
    await eventually(lambda: waiting(running, worker) == 2)
    seen = len(worker.probes)
    await eventually(lambda: len(worker.probes) >= seen + 5)
    assert running.state(worker) == "ready"
    gate.set()
    for client in clients:
        await client.answer()


async def waiting_for_one(stage: Stage, answer: Answer, count: int) -> tuple[Running, Worker, list[Client]]:
    """So many requests for the worker `a`, one of them on its only connection; `b` has room."""
    worker, other = await stage.worker(answer=lambda _: answer), await stage.worker()
    named = [{"url": worker.url, "id": "a"}, {"url": other.url, "id": "b"}]
    order = {"policy": "tests.support.in_order"}
    running = await stage.gateway(*named, connections={"per_worker": 1}, routing=order)
    clients = [await stage.client(running) for _ in range(count)]
    for client in clients:
        await client.send(post())
    pool = running.house.pool(running.seats["a"])
    await eventually(lambda: worker.running == 1 and len(pool.waiting) == count - 1)
    return running, worker, clients


async def test_when_the_worker_goes_away_those_that_wait_go_elsewhere(stage: Stage) -> None:
    _, worker, clients = await waiting_for_one(stage, reply(delay=0.5, stop=-1), 5)
    await worker.refuse(hang_up=False)
    statuses = sorted([(await client.answer()).status for client in clients])
    assert statuses == [200, 200, 200, 200, 502], "the one that ran there is lost"
    await worker.listen()
    worker.heal()


async def test_those_that_wait_for_a_worker_that_is_down_go_elsewhere(stage: Stage) -> None:
    """Its probes fail while what runs there goes on; nobody need wait for a connection to it."""
    running, worker, clients = await waiting_for_one(stage, reply(stop=-1, ending="hang"), 4)
    for _ in range(3):
        running.house.signal(running.seats["a"], PROBE_FAILED, "a test")
    first, *others = clients
    assert [(await client.answer()).status for client in others] == [200] * 3
    assert worker.requests != []
    first.drop()


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_storm_of_requests_whose_clients_leave_costs_no_place(stage: Stage, seed: int) -> None:
    """Twenty at a time, left at random moments: while they wait, connect, are sent, or are answered."""
    dice = Random(seed)

    def answer(_: Seen) -> Answer:
        return dice.choice((reply(), reply(delay=0.02), reply(stop=-1, ending="hang"), reply(keep_alive=False),
                            stream(event("1"), stop=1, ending="hang"), reply(stop=-1, ending="reset")))  # fmt: skip

    worker = await stage.worker(answer=answer)
    health = {"unhealthy_after": 10_000}
    running = await stage.gateway(worker, connections={"per_worker": LIMIT}, health=health)
    end = asyncio.get_running_loop().time() + STORM_SECONDS

    async def come_and_go() -> None:
        while asyncio.get_running_loop().time() < end:
            client = await stage.client(running)
            await client.send(post(dice.choice((HELLO, STREAM))))
            assert places(running, worker) <= LIMIT
            await asyncio.sleep(dice.random() * 0.05)
            client.drop(reset=dice.random() < 0.5)

    await asyncio.gather(*(come_and_go() for _ in range(2 * LIMIT)))
    worker.answer = reply()
    await eventually(lambda: not running.seat(worker).load.in_flight and not waiting(running, worker))
    assert (await ask(running.port, post())).status == 200
    assert running.house.busy_connections() == 0
    await eventually(lambda: not worker.running)
    pool = running.house.pool(running.seat(worker))
    assert repr(pool) == f"<Pool {worker.id}, 0 busy, {places(running, worker)} idle>"
    worker.most_at_once, worker.answer = 0, reply(delay=0.2)
    answers = await asyncio.gather(*(ask(running.port, post()) for _ in range(2 * LIMIT)))
    assert {answer.status for answer in answers} == {200}
    assert worker.most_at_once == LIMIT, "every place is still there, and no more"


async def test_a_changed_limit_lets_in_those_that_wait(stage: Stage) -> None:
    gate = asyncio.Event()
    worker = await stage.worker(answer=lambda _: stream(gate, DONE))
    running = await stage.gateway(worker, connections={"per_worker": 1})
    clients = [await stage.client(running) for _ in range(4)]
    for client in clients:
        await client.send(post(STREAM))
    await eventually(lambda: waiting(running, worker) == 3)
    settings = running.house.settings
    connections = settings.connections.model_copy(update={"per_worker": 3})
    running.house.adopt(settings.model_copy(update={"connections": connections}))
    await eventually(lambda: worker.running == 3)
    assert waiting(running, worker) == 1
    gate.set()
    for client in clients:
        assert (await client.answer()).status == 200
