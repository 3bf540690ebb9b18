"""What is counted is given back on every path, in every phase, and nothing but its end ever changes it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from router.core.health import PROBE_OK
from router.events import Chosen
from tests.support.client import Client, post
from tests.support.endpoints import CHAT, MESSAGES, PROMPTS, RESPONSES, Endpoint, forms
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, Answer, Worker, event, full_backlog, garbled, reply
from tests.support.worker import stream as streamed

NEVER = reply(stop=-1, ending="hang")
ENDPOINTS = pytest.mark.parametrize("endpoint", [CHAT, MESSAGES, RESPONSES], ids=["chat", "messages", "responses"])
MANY = 50


def asked(endpoint: Endpoint, at: int, *, stream: bool) -> bytes:
    return endpoint.request(f"You know all of subject {at}. " * 10, "Hi", stream=stream)


async def in_flight(running: Running) -> dict[str, float]:
    """The gauges that count: requests, tokens and places, over all workers."""
    metrics = await running.metrics()
    names = ("prefix_router_in_flight{", "prefix_router_outstanding_tokens{", "prefix_router_queued")
    return {name: value for name, value in metrics.items() if name.startswith(names)}


async def zero(running: Running) -> None:
    await eventually(lambda: not running.taken(), lambda: f"still taken: {running.taken()}")
    assert set((await in_flight(running)).values()) == {0}


async def never_negative(running: Running) -> None:
    assert min((await in_flight(running)).values()) >= 0


# Clients that leave, fifty in each phase.


@asynccontextmanager
async def dead_end() -> AsyncIterator[int]:
    """A port to which no connection comes about."""
    listener, waiting, port = full_backlog()
    try:
        yield port
    finally:
        for sock in (listener, *waiting):
            sock.close()


async def many(stage: Stage, running: Running, endpoint: Endpoint, *, stream: bool, count: int = MANY) -> list[Client]:
    clients = [await stage.client(running) for _ in range(count)]
    for at, client in enumerate(clients):
        await client.send(asked(endpoint, at, stream=stream))
    return clients


async def all_leave(running: Running, clients: list[Client], phase: str) -> None:
    for at, client in enumerate(clients):
        client.drop(reset=at % 2 == 0)
        if not at % 10:
            await never_negative(running)
    await zero(running)
    assert {(event.status, event.cancelled_in) for event in running.finished} == {(499, phase)}
    assert len(running.finished) == len(clients)


@ENDPOINTS
@forms
async def test_while_they_connect(stage: Stage, endpoint: Endpoint, stream: bool) -> None:
    async with dead_end() as port:
        running = await stage.gateway(
            f"http://127.0.0.1:{port}", ready=False, timeouts={"connect_seconds": 30},
            health={"interval_seconds": 60, "timeout_seconds": 0.2},
        )  # fmt: skip
        (seat,) = running.seats.values()
        await eventually(lambda: seat.health.failed_probes)
        running.house.signal(seat, PROBE_OK)
        clients = await many(stage, running, endpoint, stream=stream)
        await eventually(lambda: seat.load.in_flight == MANY)
        await all_leave(running, clients, "connecting")


@ENDPOINTS
@forms
async def test_while_they_wait_for_a_worker_with_room(stage: Stage, endpoint: Endpoint, stream: bool) -> None:
    worker = await stage.worker(answer=NEVER)
    running = await stage.gateway({"url": worker.url, "max_in_flight": 1})
    (first,) = await many(stage, running, endpoint, stream=stream, count=1)
    await eventually(lambda: worker.running == 1)
    clients = await many(stage, running, endpoint, stream=stream)
    await eventually(lambda: len(running.house.room) == MANY)
    for at, client in enumerate(clients):
        client.drop(reset=at % 2 == 0)
    await eventually(lambda: not len(running.house.room))
    assert (await running.metrics())["prefix_router_queued"] == 0
    assert running.seat(worker).load.in_flight == 1
    first.drop()
    await zero(running)
    assert worker.started == 1


@ENDPOINTS
@forms
async def test_while_they_wait_for_the_head(stage: Stage, endpoint: Endpoint, stream: bool) -> None:
    workers = [await stage.worker(answer=NEVER) for _ in range(2)]
    running = await stage.gateway(*workers)
    clients = await many(stage, running, endpoint, stream=stream)
    await eventually(lambda: sum(worker.running for worker in workers) == MANY)
    assert sum(seat.load.in_flight for seat in running.seats.values()) == MANY
    await all_leave(running, clients, "waiting")
    await eventually(lambda: sum(worker.aborted for worker in workers) == MANY)


@ENDPOINTS
@pytest.mark.parametrize("kind", ["events", "one JSON answer"])
async def test_in_the_middle_of_the_answer(stage: Stage, endpoint: Endpoint, kind: str) -> None:
    half = streamed(event("1"), event("2"), stop=2, ending="hang")
    if kind != "events":
        half = reply(b'{"half": ', length=100, stop=1, ending="hang")
    workers = [await stage.worker(answer=half) for _ in range(2)]
    running = await stage.gateway(*workers)
    clients = await many(stage, running, endpoint, stream=kind == "events")
    for client in clients:
        await client.piece(await client.head())
    await all_leave(running, clients, "streaming")
    await eventually(lambda: sum(worker.aborted for worker in workers) == MANY)


@ENDPOINTS
@forms
async def test_after_the_last_byte(stage: Stage, endpoint: Endpoint, stream: bool) -> None:
    workers = [await stage.worker(answer=streamed(event("1"), DONE)) for _ in range(2)]
    running = await stage.gateway(*workers)
    for client in await many(stage, running, endpoint, stream=stream):
        await client.answer()
        client.drop(reset=True)
    await zero(running)
    assert [event.status for event in running.finished] == [200] * MANY
    assert sum(worker.finished for worker in workers) == MANY


@ENDPOINTS
async def test_while_another_worker_is_tried(stage: Stage, endpoint: Endpoint) -> None:
    """Each attempt has its own guard: the one that was refused and the one that hangs."""
    busy, hanging = await stage.worker(answer=reply(b"{}", 503)), await stage.worker(answer=NEVER)
    running = await stage.gateway({"url": busy.url, "id": "a"}, {"url": hanging.url, "id": "b"},
                                  routing={"policy": "tests.support.in_order"})  # fmt: skip
    clients = await many(stage, running, endpoint, stream=True)
    await eventually(lambda: hanging.running == MANY)
    assert running.seats["a"].load.in_flight == 0
    assert running.seats["b"].load.in_flight == MANY
    await all_leave(running, clients, "waiting")


async def test_at_whatever_byte_the_request_breaks_off(stage: Stage) -> None:
    worker = await stage.worker(answer=NEVER)
    running = await stage.gateway(worker)
    request = asked(CHAT, 0, stream=True)
    for at in range(1, len(request), 9):
        client = await stage.client(running)
        await client.send(request[:at])
        client.drop(reset=at % 2 == 0)
    await zero(running)
    assert worker.requests == []


# Workers that break.

BROKEN: dict[str, Answer] = {
    "a reset": reply(stop=-1, ending="reset"),
    "a close": reply(stop=-1, ending="close"),
    "headers that are none": garbled(b"HTTP/1.1 200 OK\r\nno colon\x00 here\r\n\r\n"),
    "no HTTP": garbled(b"SSH-2.0-OpenSSH\r\n\r\n"),
    "two lengths": garbled(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\nabc"),
    "a length that is none": garbled(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nabc"),
    "a chunk that is none": garbled(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n"),
    "a status that is none": garbled(b"HTTP/1.1 abc OK\r\n\r\n"),
    "a very long head": garbled(b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 50_000 + b"\r\n\r\n"),
    "time": NEVER,
    "an error": reply(b"{}", 500),
    "a refusal": reply(b"{}", 503),
    "a bad request": reply(b"{}", 400),
    "a cut stream": streamed(event("1"), event("2"), stop=1, ending="reset"),
    "a short answer": reply(b"{}", length=10, stop=1, ending="close"),
    "a long answer": reply(b'{"more": "than said"}', length=2),
    "two answers": Answer(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}" * 2),
    "an endless interim": garbled(b"HTTP/1.1 100 Continue\r\n\r\n" * 50),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_whatever_a_worker_does_its_requests_go_back_once(stage: Stage, name: str) -> None:
    workers = [await stage.worker(answer=BROKEN[name]) for _ in range(2)]
    running = await stage.gateway(*workers, timeouts={"first_byte_seconds": 0.3, "idle_seconds": 0.3},
                                  health={"unhealthy_after": 1000, "outliers": {"most_ejected": 0}})  # fmt: skip
    for endpoint in (CHAT, MESSAGES):
        for streaming in (False, True):
            clients = await many(stage, running, endpoint, stream=streaming, count=8)
            for client in clients:
                head = await client.head()
                await client.rest(head)
                await client.close()
            await zero(running)
    assert len(running.finished) == 32
    generations = sum(worker.started for worker in workers)
    assert generations <= len(running.told(Chosen))
    assert all(event.tries <= 2 for event in running.finished), "each worker once at most"


# Probes, polls and flaps.


async def test_no_probe_and_no_flap_resets_a_count(stage: Stage) -> None:
    """Ten slow requests through many probes, a worker that goes down and comes back, and a change of its settings."""
    gate = asyncio.Event()
    worker, other = await stage.worker(answer=lambda _: streamed(gate, event("x"), DONE)), await stage.worker()
    running = await stage.gateway(worker, health={"interval_seconds": 0.05, "timeout_seconds": 0.5})
    clients = await many(stage, running, CHAT, stream=True, count=10)
    await eventually(lambda: worker.running == 10)
    counts: set[float] = set()

    async def look() -> None:
        counts.add((await running.metrics())[f'prefix_router_in_flight{{worker="{worker.id}"}}'])

    seen = len(worker.probes)
    while len(worker.probes) < seen + 25:
        await look()
        await asyncio.sleep(0.02)
    worker.healthy = 503
    await eventually(lambda: running.state(worker) == "down")
    await look()
    worker.healthy = 200
    await eventually(lambda: running.state(worker) == "ready")
    await look()
    for path, body in (("", {"url": worker.url, "weight": 2}), ("", {"url": other.url}), (f"/{worker.id}/drain", None),
                       (f"/{worker.id}/undrain", None)):  # fmt: skip
        data = b"" if body is None else json.dumps(body).encode()
        assert (await ask(running.port, post(data, f"/admin/workers{path}"))).status in (200, 201)
        await look()
    assert counts == {10}
    gate.set()
    for client in clients:
        assert (await client.answer()).status == 200
    await zero(running)


async def test_an_honest_zero_after_a_restart_draws_no_more_than_its_share(stage: Stage) -> None:
    """After aborts at one worker and a restart of another, both are as idle as they look."""
    workers = [await stage.worker(answer=NEVER) for _ in range(2)]
    running = await stage.gateway(*workers, routing={"slow_start_seconds": 0})
    clients = await many(stage, running, CHAT, stream=True, count=20)
    await eventually(lambda: sum(worker.running for worker in workers) == 20)
    for client in clients:
        client.drop()
    await zero(running)
    await workers[0].refuse()
    await eventually(lambda: running.state(workers[0]) != "ready")
    await workers[0].listen()
    for worker in workers:
        worker.heal()
        worker.requests.clear()
    await running.ready()
    client = await stage.client(running)
    for at in range(1000, 1040):
        await client.ask(asked(CHAT, at, stream=False))
    assert min(len(worker.requests) for worker in workers) >= 12


# Limits of the gateway's own.

LIMITS: dict[str, Callable[[Worker], tuple[object, dict[str, object]]]] = {
    "a worker's": lambda worker: ({"url": worker.url, "max_in_flight": 4}, {}),
    "each worker's": lambda worker: (worker.url, {"limits": {"worker_in_flight": 4}}),
    "all together's": lambda worker: (worker.url, {"limits": {"in_flight": 4}}),
}


@pytest.mark.parametrize("kind", LIMITS)
@forms
async def test_whoever_vanishes_holds_no_place(stage: Stage, kind: str, stream: bool) -> None:
    """Four run and four wait; all vanish; the fifth is admitted at once, and so are four more beside it."""
    worker = await stage.worker(answer=NEVER)
    given, settings = LIMITS[kind](worker)
    running = await stage.gateway(given, queue={"max": 4, "wait_seconds": 30}, **settings)  # type: ignore[arg-type]
    for order in (1, -1):
        clients = await many(stage, running, CHAT, stream=stream, count=8)
        await eventually(lambda: worker.running == 4 and len(running.house.room) == 4)
        refused = await ask(running.port, asked(CHAT, 99, stream=stream))
        assert refused.status == 429
        for client in clients[::order]:
            client.drop(reset=order > 0)
        await eventually(lambda: not worker.running and not len(running.house.room))
        await zero(running)
    gate = asyncio.Event()
    worker.answer = lambda _: streamed(gate, DONE)
    clients = await many(stage, running, CHAT, stream=stream, count=4)
    await eventually(lambda: worker.running == 4)
    assert len(running.house.room) == 0
    gate.set()
    for client in clients:
        assert (await client.answer()).status == 200


@pytest.mark.parametrize("way", ["expired", "worker down", "worker removed", "refused connection", "cut"])
async def test_every_way_out_frees_the_place(stage: Stage, way: str) -> None:
    gate = asyncio.Event()
    worker, spare = await stage.worker(), await stage.worker()
    worker.answer = lambda _: (
        streamed(gate, event("x"), stop=1, ending="reset") if way == "cut" else streamed(gate, DONE)
    )
    running = await stage.gateway(
        {"url": worker.url, "max_in_flight": 2}, queue={"max": 3, "wait_seconds": 0.5 if way == "expired" else 30}
    )
    clients = await many(stage, running, CHAT, stream=True, count=5)
    await eventually(lambda: worker.running == 2 and len(running.house.room) == 3)
    if way == "worker down":
        worker.healthy = 503
    elif way == "worker removed":
        remove = post(b"", f"/admin/workers/{worker.id}").replace(b"POST", b"DELETE", 1)
        assert (await ask(running.port, remove)).status == 204
    elif way == "refused connection":
        await worker.refuse()
    if way == "expired":
        await eventually(lambda: not len(running.house.room))
    gate.set()
    for client in clients:
        await client.closed_or_answered()
    await eventually(lambda: not len(running.house.room))
    await zero(running)
    assert (await ask(running.port, post(json.dumps({"url": spare.url}).encode(), "/admin/workers"))).status == 201
    await eventually(lambda: running.state(spare) == "ready")
    assert (await ask(running.port, asked(CHAT, 0, stream=False))).status in (200, 502)


async def test_every_endpoint_gives_back_what_it_took(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway({"url": worker.url, "max_in_flight": 1}, queue={"max": 0})
    for endpoint in PROMPTS.values():
        for answer in (reply(), NEVER, BROKEN["a reset"], BROKEN["a cut stream"]):
            worker.answer = replace(answer)
            client = await stage.client(running)
            await client.send(asked(endpoint, 0, stream=False))
            if answer is NEVER:
                await eventually(lambda: worker.running == 1)
                client.drop()
            else:
                await client.closed_or_answered()
            await zero(running)
            running.seat(worker).health.__init__(running.house.fleet.limits)  # type: ignore[misc]
            running.house.signal(running.seat(worker), PROBE_OK)
