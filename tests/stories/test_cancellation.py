"""A client that goes away takes its request with it: within a second, at every phase, streaming or not."""

import asyncio
from random import Random

import pytest

from router.core.health import PROBE_OK
from tests.support.client import HELLO, STREAM, Client, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import Worker, event, full_backlog, reply, stream

BOTH = pytest.mark.parametrize("body", [HELLO, STREAM], ids=["plain", "streaming"])
SOON = 1.0  # seconds
NEVER = reply(stop=-1, ending="hang")


async def is_told(worker: Worker, dropped_at: float) -> None:
    """The worker's connection closes within a second of the client's leaving."""
    await eventually(lambda: worker.aborted_at, "the worker was never told")
    assert worker.aborted_at[-1] - dropped_at < SOON


async def is_counted(running: Running, phase: str, count: int = 1) -> None:
    await eventually(lambda: len(running.finished) == count, f"{len(running.finished)} of {count} ended")
    assert {(event.status, event.cancelled_in) for event in running.finished} == {(499, phase)}
    metrics = await running.metrics()
    assert metrics[f'prefix_router_cancelled_total{{phase="{phase}"}}'] == count


def now() -> float:
    return asyncio.get_running_loop().time()


@BOTH
@pytest.mark.parametrize("reset", [False, True])
async def test_while_the_request_comes_in(stage: Stage, body: bytes, reset: bool) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(body, length=len(body) + 10))
    await asyncio.sleep(0.05)
    client.drop(reset=reset)
    await is_counted(running, "receiving")
    assert worker.requests == []


@BOTH
async def test_while_it_waits_in_the_queue(stage: Stage, body: bytes) -> None:
    worker = await stage.worker(answer=NEVER)
    running = await stage.gateway({"url": worker.url, "max_in_flight": 1})
    first, second = await stage.client(running), await stage.client(running)
    await first.send(post())
    await eventually(lambda: worker.running == 1)
    await second.send(post(body))
    await eventually(lambda: len(running.house.room) == 1)
    second.drop()
    await is_counted(running, "queued")
    assert len(running.house.room) == 0
    first.drop()
    await eventually(lambda: worker.aborted == 1)
    assert worker.started == 1


@BOTH
async def test_while_it_connects(stage: Stage, body: bytes) -> None:
    listener, waiting, port = full_backlog()
    try:
        settings = {"timeouts": {"connect_seconds": 30}, "health": {"interval_seconds": 60, "timeout_seconds": 0.2}}
        running = await stage.gateway(f"http://127.0.0.1:{port}", ready=False, **settings)
        seat = running.seats[f"127.0.0.1:{port}"]
        await eventually(lambda: seat.health.failed_probes)
        running.house.signal(seat, PROBE_OK)
        client = await stage.client(running)
        await client.send(post(body))
        await eventually(lambda: seat.load.in_flight == 1)
        client.drop()
        await is_counted(running, "connecting")
    finally:
        for sock in (listener, *waiting):
            sock.close()


@BOTH
@pytest.mark.parametrize("reset", [False, True])
async def test_while_it_waits_for_the_answer(stage: Stage, body: bytes, reset: bool) -> None:
    worker = await stage.worker(answer=NEVER)
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(body))
    await eventually(lambda: worker.running == 1)
    dropped = now()
    client.drop(reset=reset)
    await is_told(worker, dropped)
    await is_counted(running, "waiting")
    assert running.state(worker) == "ready"


@BOTH
async def test_while_the_answer_passes(stage: Stage, body: bytes) -> None:
    worker = await stage.worker(answer=stream(*[event(str(at)) for at in range(400)], gap=0.02))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(body))
    answer = await client.head()
    for _ in range(3):
        await client.piece(answer)
    dropped = now()
    client.drop()
    await is_told(worker, dropped)
    await is_counted(running, "streaming")
    assert worker.finished == 0


@BOTH
async def test_in_a_silent_gap(stage: Stage, body: bytes) -> None:
    worker = await stage.worker(answer=stream(event("1"), stop=1, ending="hang"))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(body))
    await client.piece(await client.head())
    dropped = now()
    client.drop()
    await is_told(worker, dropped)
    await is_counted(running, "streaming")


async def test_after_the_last_byte_nothing_is_cancelled(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    assert (await client.ask()).status == 200
    client.drop()
    await asyncio.sleep(0.05)
    assert [event.status for event in running.finished] == [200]
    assert worker.aborted == 0


async def test_a_client_that_closes_its_sending_side_has_gone(stage: Stage) -> None:
    """Half-closed connections are closed, as uvicorn and most servers do."""
    worker = await stage.worker(answer=NEVER)
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post())
    await eventually(lambda: worker.running == 1)
    closed = now()
    client.half_close()
    await is_told(worker, closed)
    await is_counted(running, "waiting")


async def test_while_a_busy_workers_answer_is_held(stage: Stage) -> None:
    """The first said 503 and its body goes on; the client leaves before another is asked."""
    first = await stage.worker(answer=stream(b"busy", status=503, stop=1, ending="hang"))
    second = await stage.worker()
    routing = {"policy": "tests.support.in_order"}
    running = await stage.gateway({"url": first.url, "id": "a"}, {"url": second.url, "id": "b"}, routing=routing)
    client = await stage.client(running)
    await client.send(post())
    await eventually(lambda: first.requests)
    await asyncio.sleep(0.05)
    client.drop()
    await is_counted(running, "waiting")
    assert second.requests == []


@BOTH
async def test_fifty_at_once(stage: Stage, body: bytes) -> None:
    worker = await stage.worker(answer=NEVER)
    running = await stage.gateway(worker, timeouts={"connect_seconds": 5})
    clients = [await stage.client(running) for _ in range(50)]
    for client in clients:
        await client.send(post(body))
    await eventually(lambda: worker.running == 50)
    dropped = now()
    for client in clients:
        client.drop()
    await eventually(lambda: worker.aborted == 50)
    assert max(worker.aborted_at) - dropped < 2 * SOON
    await is_counted(running, "waiting", 50)


async def test_pipelined_requests_go_with_their_client(lane: Stage) -> None:
    """The one that runs is cancelled, those behind it never begin."""
    worker = await lane.worker(answer=NEVER)
    running = await lane.gateway(worker)
    client = await lane.client(running)
    await client.send(post() * 3)
    await eventually(lambda: worker.running == 1)
    dropped = now()
    client.drop()
    await is_told(worker, dropped)
    await asyncio.sleep(0.05)
    assert worker.started == 1


async def test_a_pipelined_request_that_runs_goes_with_its_client_too(lane: Stage) -> None:
    worker = await lane.worker(answer=lambda seen: NEVER if b"second" in seen.body else reply())
    running = await lane.gateway(worker)
    client = await lane.client(running)
    second = b'{"model": "m", "prompt": "second"}'
    await client.send(post() + post(second) + post())
    assert (await client.answer()).status == 200
    await eventually(lambda: worker.running == 1)
    dropped = now()
    client.drop()
    await is_told(worker, dropped)


async def test_a_storm_of_cancellations_leaves_nothing_behind(stage: Stage) -> None:
    """Clients leave at random moments, of workers of every kind; then all is as before."""
    dice = Random(5)
    answers = [
        reply(delay=0.02), reply(b'{"error": "busy"}', 503), NEVER, reply(stop=-1, ending="reset"),
        stream(*[event(str(at)) for at in range(20)], gap=0.01), stream(event("1"), stop=1, ending="reset"),
        reply(b"x" * 300_000), reply(b"{}", 500),
    ]  # fmt: skip
    workers = [await stage.worker(answer=lambda _: dice.choice(answers)) for _ in range(3)]
    settings = [{"url": worker.url, "max_in_flight": 4} for worker in workers]
    running = await stage.gateway(*settings, queue={"wait_seconds": 0.2}, health={"unhealthy_after": 1000})

    async def one(at: int) -> None:
        await asyncio.sleep(dice.random())
        client = await Client.connect(running.port)
        request = post(dice.choice([HELLO, STREAM]))
        try:
            async with asyncio.timeout(dice.random() * 0.2):
                await client.send(request[: dice.randrange(len(request))] if dice.random() < 0.1 else request)
                await client.answer()
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            pass
        client.drop(reset=dice.random() < 0.5)

    await asyncio.gather(*[one(at) for at in range(250)])
    for worker in workers:
        worker.answer = reply()
    await stage.at_rest(running)
    answers_now = [(await ask(running.port, post())).status for _ in range(10)]
    assert answers_now == [200] * 10
    statuses = {event.status for event in running.finished}
    assert 499 in statuses
    assert 200 in statuses
    metrics = await running.metrics()
    for worker in workers:
        assert metrics[f'prefix_router_in_flight{{worker="{worker.id}"}}'] == 0
        assert metrics[f'prefix_router_outstanding_tokens{{worker="{worker.id}"}}'] == 0
