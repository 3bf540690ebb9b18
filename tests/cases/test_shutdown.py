"""76: told to end, it says so first, ends nobody's request, and is held up by nothing that is no request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.client import HELLO, STREAM, get, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, event, full_backlog, reply, stream

GRACE = 0.4
EVENTS = [event(str(at)) for at in range(8)]


@asynccontextmanager
async def ending(running: Running, grace: float = GRACE) -> AsyncIterator["asyncio.Task[None]"]:
    """Told to end, as by SIGTERM; the task is done when all is over. At the block's end it must be."""
    server = running.server

    async def to_the_end() -> None:
        server.end(grace)
        await eventually(lambda: server.should_exit)
        server.started = False
        await server.shutdown([])

    task = asyncio.create_task(to_the_end(), name="worker of the test, which ends the gateway")
    await eventually(lambda: running.house.draining)
    yield task
    async with asyncio.timeout(20):
        await task
    assert not running.server.server_state.connections
    assert not any(seat.load.in_flight or seat.load.charged for seat in running.seats.values())


async def refused(running: Running) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
    except OSError:
        return True
    writer.close()
    return False


async def test_it_is_said_at_once_and_work_goes_on_for_the_grace(stage: Stage) -> None:
    worker = await stage.worker(answer=stream(*EVENTS, DONE, gap=0.15))
    running = await stage.gateway(worker, shutdown={"grace_seconds": 2})
    streaming = [asyncio.ensure_future(ask(running.port, post(STREAM))) for _ in range(10)]
    await eventually(lambda: worker.running == 10)
    async with ending(running, 1.0) as over:
        began = asyncio.get_running_loop().time()
        ready = await ask(running.port, get("/readyz"))
        assert (ready.status, ready.json()["draining"]) == (503, True)
        assert (await ask(running.port, get("/ping"))).status == 503
        assert (await ask(running.port, get("/healthz"))).status == 200
        worker.answer = reply()
        if asyncio.get_running_loop().time() - began < 0.5:
            assert (await ask(running.port, post())).status == 200, "the listener is open for the grace"
        assert not over.done()
        answers = await asyncio.gather(*streaming)
    assert {(got.status, got.whole, got.body) for got in answers} == {(200, True, b"".join(EVENTS) + DONE)}
    assert await refused(running)
    assert {told.status for told in running.finished} <= {200, 503}


PHASES = ("receiving", "queued", "waiting", "streaming", "held", "slow reader")


@pytest.mark.parametrize("body", [HELLO, STREAM], ids=["plain", "streaming"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_request_is_finished_in_whatever_phase_it_is(stage: Stage, phase: str, body: bytes) -> None:
    """It is told to end while the request is there, and the listener is closed before it can finish."""
    gate = asyncio.Event()
    whole = b"".join(EVENTS) + DONE
    worker = await stage.worker(answer=lambda _: stream(*EVENTS[:4], gate, *EVENTS[4:], DONE))
    settings: dict[str, object] = {}
    if phase == "queued":
        settings = {"limits": {"in_flight": 1}}
    if phase == "held":
        worker.answer = lambda _: stream(b"busy", gate, b"!", status=503)
        settings = {"routing": {"policy": "tests.support.in_order"}}
    if phase == "waiting":
        worker.answer = lambda _: stream(*EVENTS, DONE, delay=GRACE * 2)
    second = await stage.worker(answer=stream(*EVENTS, DONE))
    workers = [{"url": worker.url, "id": "w0"}, {"url": second.url, "id": "w1"}]
    running = await stage.gateway(*(workers if phase == "held" else workers[:1]), **settings)
    client = await stage.client(running, receive_buffer=4096 if phase == "slow reader" else None)
    first = None
    if phase == "queued":
        first = asyncio.ensure_future(ask(running.port, post(body)))
        await eventually(lambda: worker.running == 1)
    request = post(body)
    await client.send(request[:-5] if phase == "receiving" else request)
    if phase == "queued":
        await eventually(lambda: len(running.house.room) == 1)
    elif phase == "receiving":
        await asyncio.sleep(0.05)
    else:
        await eventually(lambda: len(worker.requests) == 1)
    async with ending(running):
        await eventually(lambda: running.server.should_exit)
        await asyncio.sleep(0.3)
        if phase == "receiving":
            await client.send(request[-5:])
        gate.set()
        got = await client.answer()
        assert (got.status, got.whole, got.body) == (200, True, whole)
        if first is not None:
            assert (await first).body == whole
    assert await client.closed() == b""
    assert {told.status for told in running.finished} == {200}


async def test_a_request_that_is_connecting_hears_what_became_of_it(stage: Stage) -> None:
    from router.core.health import PROBE_OK

    listener, waiting, port = full_backlog()
    try:
        limits = {"health": {"interval_seconds": 60}, "timeouts": {"connect_seconds": 1.5}}
        running = await stage.gateway(f"http://127.0.0.1:{port}", ready=False, **limits)
        [seat] = running.seats.values()
        running.house.signal(seat, PROBE_OK)
        client = await stage.client(running)
        await client.send(post())
        await eventually(lambda: seat.load.in_flight == 1)
        async with ending(running, 0.2):
            got = await client.answer()
            assert (got.status, got.code) == (504, "worker_timeout")
    finally:
        for sock in (listener, *waiting):
            sock.close()


async def test_what_is_no_request_holds_nothing_up(stage: Stage) -> None:
    """Connections that said nothing, half a head, and kept ones that were answered long ago."""
    running = await stage.gateway(await stage.worker())
    silent, half, kept = [await stage.client(running) for _ in range(3)]
    await half.send(post()[:30])
    assert (await kept.ask()).status == 200
    began = asyncio.get_running_loop().time()
    async with ending(running, 0.1):
        for client in (silent, kept):
            assert await client.closed() == b""
        half.drop()
    assert asyncio.get_running_loop().time() - began < 8


async def test_a_kept_connection_may_be_used_until_the_grace_is_over(stage: Stage) -> None:
    """Its answers are right, and when one says that it was the last, it was."""
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    assert (await client.ask()).status == 200
    async with ending(running, 1.0):
        got = await client.ask()
        assert (got.status, got.whole) == (200, True)
        if got.one("connection") != "close":
            await client.ask(get("/healthz"))
        assert await client.closed() == b""


async def test_streams_over_the_limit_are_cut_and_told(stage: Stage) -> None:
    worker = await stage.worker(answer=stream(event("1"), stop=1, ending="hang"))
    running = await stage.gateway(worker, shutdown={"drain_seconds": 1})
    client = await stage.client(running)
    await client.send(post(STREAM))
    got = await client.head()
    await client.piece(got)
    async with ending(running, 0.0):
        await client.rest(got)
        assert not got.whole
    await eventually(lambda: worker.aborted == 1, "the worker was not told")
    assert len(running.finished) == 1


async def test_told_twice_it_ends_at_once(stage: Stage) -> None:
    worker = await stage.worker(answer=stream(event("1"), stop=1, ending="hang"))
    running = await stage.gateway(worker)
    clients = [await stage.client(running) for _ in range(10)]
    for client in clients:
        await client.send(post(STREAM))
        await client.piece(await client.head())
    async with ending(running, 60):
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        running.server.cut()
        for client in clients:
            assert b"[DONE]" not in await client.closed()
    assert asyncio.get_running_loop().time() - began < 8
    await eventually(lambda: worker.aborted == 10)
