"""49, 51, 52, 55: as many connections as are needed, limits on silence, none on the whole, and no proxy in between."""

import asyncio
import json
import socket
from collections.abc import Awaitable
from typing import TypeVar

import pytest
import uvloop

from bench import streams as many
from tests.support.client import HELLO, STREAM, Client, get, post
from tests.support.gateway import Stage, ask, eventually
from tests.support.worker import DONE, Answer, event, full_backlog, reply, stream

BOTH = pytest.mark.parametrize("body", [HELLO, STREAM], ids=["plain", "streaming"])
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/rerank",
         "/v1/score", "/tokenize", "/detokenize")  # fmt: skip
HANG = reply(stop=-1, ending="hang")
AFTER_ONE = stream(event("1"), stop=1, ending="hang")


# 49: concurrency at one worker.


async def test_three_hundred_run_at_one_worker_and_its_probes_are_not_behind_them(stage: Stage) -> None:
    gate = asyncio.Event()
    worker = await stage.worker(answer=lambda _: stream(gate, DONE))
    running = await stage.gateway(worker, timeouts={"connect_seconds": 10}, health={"timeout_seconds": 5})
    asking = [asyncio.ensure_future(ask(running.port, post(STREAM))) for _ in range(300)]
    await eventually(lambda: worker.running == 300, within=30)
    probed = len(worker.probes)
    await eventually(lambda: len(worker.probes) >= probed + 3, "probes wait behind the streams")
    assert running.state(worker) == "ready"
    assert (await ask(running.port, get("/healthz"))).status == 200
    gate.set()
    answers = await asyncio.gather(*asking)
    assert {(got.status, got.whole) for got in answers} == {(200, True)}
    assert worker.most_at_once == 300


async def test_a_limit_on_requests_is_a_queue_that_can_be_seen(stage: Stage) -> None:
    gate = asyncio.Event()
    worker = await stage.worker(answer=lambda _: stream(gate, DONE))
    running = await stage.gateway({"url": worker.url, "max_in_flight": 20}, timeouts={"connect_seconds": 10})
    asking = [asyncio.ensure_future(ask(running.port, post(STREAM))) for _ in range(50)]
    await eventually(lambda: worker.running == 20 and len(running.house.room) == 30)
    assert (await running.metrics())["prefix_router_queued"] == 30
    gate.set()
    assert {got.status for got in await asyncio.gather(*asking)} == {200}
    assert worker.most_at_once == 20


T = TypeVar("T")


def together(work: Awaitable[T]) -> T:
    """In a loop of the test's own: gateway and worker are other processes."""
    return uvloop.run(work)  # type: ignore[arg-type]


def test_two_hundred_streams_at_once_need_two_descriptors_each_and_a_few() -> None:
    """A thousand by `python -m bench.streams`. All are open at one time, all end whole, and health is answered."""
    count = 200

    async def all_of_them(port: int, pid: int) -> dict[str, object]:
        await many.ready(port)
        return await many.streams(port, pid, count)

    with many.running(count, 2 * count + many.OVERHEAD) as (port, pid):
        told = together(all_of_them(port, pid))
    assert (told["whole"], told["statuses"], told["failed_looks"]) == (count, [200], 0)
    assert int(told["looks"]) >= 3  # type: ignore[call-overload]
    assert float(told["worst_look_ms"]) < 5000  # type: ignore[arg-type]


def test_with_too_few_descriptors_those_beyond_wait_and_all_are_served() -> None:
    """Half of what a hundred streams need: the others wait at the door, nobody is refused, nobody blamed."""

    async def too_many(port: int, pid: int) -> None:
        await many.ready(port)
        for streaming in (True, False, False):
            request = many.post(many.body(100, stream=streaming))
            answers = await many.all_of([many.ask(port, request) for _ in range(100)])
            assert {status for status, _ in answers} == {200}
            if streaming:
                assert all(data.endswith(many.DONE) for status, data in answers)
        for _ in range(100):  # until what was left of those has gone
            few = await many.all_of([many.ask(port, request) for _ in range(20)])
            if {status for status, _ in few} == {200}:
                break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError("descriptors are used up")
        listed = json.loads((await many.ask(port, many.HEALTH.replace(b"/healthz", b"/admin/workers")))[1])["workers"]
        assert [(worker["state"], worker["in_flight"]) for worker in listed] == [("ready", 0)]

    with many.running(1, 100) as (port, pid):
        together(too_many(port, pid))


def test_thirty_prompts_of_two_megabytes_at_a_time_leave_health_answered() -> None:
    async def long(port: int, pid: int) -> dict[str, object]:
        await many.ready(port)
        return await many.long_prompts(port, pid, many.LONG_AT_ONCE, 2.0)

    with many.running(1, 1024) as (port, pid):
        told = together(long(port, pid))
    assert (told["statuses"], told["failed_looks"]) == ([200], 0)
    assert float(told["worst_look_ms"]) < 5000  # type: ignore[arg-type]


# 51: limits.


@pytest.mark.parametrize("path", PATHS)
async def test_no_path_has_a_limit_on_the_whole(stage: Stage, path: str) -> None:
    """Each silence is shorter than its limit and all together are many times longer; each path honours both limits."""
    limits = {"first_byte_seconds": 0.5, "idle_seconds": 0.5}
    worker = await stage.worker(answer=stream(*[event(str(at)) for at in range(8)], DONE, delay=0.15, gap=0.15))
    running = await stage.gateway(worker, timeouts=limits, health={"unhealthy_after": 1000})
    body = json.dumps({"model": "m", "input": "x", "messages": [], "stream": True}).encode()
    got = await ask(running.port, post(body, path))
    assert (got.status, got.whole, got.body[-len(DONE) :]) == (200, True, DONE)
    worker.answer = AFTER_ONE
    cut = await ask(running.port, post(body, path))
    assert (cut.status, cut.whole, cut.body) == (200, False, event("1"))
    worker.answer = HANG
    late = await ask(running.port, post(body, path))
    assert (late.status, late.one("content-type")) == (504, "application/json")
    assert late.json()["error"]["type"]
    await eventually(lambda: worker.aborted == 2)


async def test_an_answer_in_one_piece_may_take_its_time(stage: Stage) -> None:
    worker = await stage.worker(answer=reply(delay=1.5))
    running = await stage.gateway(worker, timeouts={"idle_seconds": 0.3})
    assert (await ask(running.port, post())).status == 200


async def test_a_request_that_takes_long_to_come_in_has_its_own_limit(stage: Stage) -> None:
    """The worker's limits begin when the request has gone out."""
    worker = await stage.worker()
    running = await stage.gateway(worker, timeouts={"first_byte_seconds": 0.4, "client_read_seconds": 5})
    client = await stage.client(running)
    whole = post()
    await client.send(whole[:-9], *[whole[at : at + 3] for at in range(len(whole) - 9, len(whole), 3)], gap=0.3)
    assert (await client.answer()).status == 200


# 52: one worker that does not answer.


@pytest.mark.parametrize("way", ["never answers", "never reads", "never accepts"])
async def test_one_dead_worker_slows_no_other(stage: Stage, way: str) -> None:
    """A hundred requests hang at it; those of others pass as ever, and so does health."""
    listener, waiting, port = full_backlog()
    try:
        dead = await stage.worker(answer=HANG, models=("dead",), reads=True)
        good = await stage.worker(models=("good",))
        url = f"http://127.0.0.1:{port}" if way == "never accepts" else dead.url
        stuck = {"url": url, "id": "stuck", "models": ["dead"]}
        running = await stage.gateway(
            stuck, good, ready=False, timeouts={"connect_seconds": 30}, health={"timeout_seconds": 0.3}
        )
        await eventually(lambda: running.state(good) == "ready")
        seat = running.seats["stuck"]
        if way == "never accepts":
            from router.core.health import PROBE_OK

            running.house.signal(seat, PROBE_OK)
        else:
            await eventually(lambda: seat.health.state.value == "ready")
        dead.reads = way != "never reads"
        clients: list[Client] = [await stage.client(running) for _ in range(100)]
        for client in clients:
            await client.send(post(b'{"model": "dead", "messages": []}'))
        await eventually(lambda: seat.load.in_flight > 0)
        began = asyncio.get_running_loop().time()
        for _ in range(20):
            assert (await ask(running.port, post(b'{"model": "good", "messages": []}'))).status == 200
        assert (await ask(running.port, get("/healthz"))).status == 200
        assert asyncio.get_running_loop().time() - began < 5.0
        for client in clients:
            client.drop()
        await eventually(lambda: seat.load.in_flight == 0)
        if way != "never accepts":
            dead.reads = True
            await eventually(lambda: not seat.health.failed_probes)  # those that hang end too
    finally:
        for sock in (listener, *waiting):
            sock.close()


async def test_its_prompts_go_elsewhere_once_it_is_known(stage: Stage) -> None:
    """A worker that takes connections and says nothing fails its probes too: then nobody waits for it any more."""
    dead, good = await stage.worker(), await stage.worker()
    quick = {"interval_seconds": 0.2, "timeout_seconds": 0.3}
    running = await stage.gateway(dead, good, health=quick)
    dead.answer, dead.probe_delay = HANG, 60.0
    await eventually(lambda: running.state(dead) == "down")
    for at in range(20):
        body = json.dumps({"model": "m", "prompt": f"{at} " + "text " * 100}).encode()
        got = await ask(running.port, post(body, "/v1/completions"))
        assert (got.status, got.one("x-router-worker")) == (200, good.id)
    assert dead.requests == []
    dead.heal()


# 55: proxies in the environment, and addresses that move.


@BOTH
async def test_no_proxy_of_the_environment_is_asked(stage: Stage, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        worker = await stage.worker(answer=stream(event("1"), DONE))
        running = await stage.gateway(worker)
        assert (await ask(running.port, post(body))).status == 200
        await eventually(lambda: len(worker.probes) >= 2)
        with pytest.raises(BlockingIOError):
            proxy.accept()


async def test_a_worker_that_moves_to_another_process_on_its_address_is_found_again(stage: Stage) -> None:
    """A rollout: the old one hangs up and refuses, the new one listens where it was. No pooled connection stays."""
    worker = await stage.worker()
    running = await stage.gateway(worker, health={"interval_seconds": 0.2})
    client = await stage.client(running)
    for _ in range(3):
        assert (await client.ask()).status == 200
        await worker.refuse()
        assert (await client.ask()).status == 503
        await worker.listen()
        await eventually(lambda: running.state(worker) != "down")
        assert (await client.ask()).status == 200


async def test_a_worker_that_closes_idle_connections_costs_no_request(stage: Stage) -> None:
    """It closes each after 50 ms; requests come at every distance around that. None fails, none runs twice."""
    worker = await stage.worker(answer=Answer(), idle_close=0.05)
    running = await stage.gateway(worker)
    client = await stage.client(running)
    pauses = [0.0, 0.03, 0.045, 0.048, 0.049, 0.05, 0.051, 0.052, 0.055, 0.06, 0.1] * 3
    for pause in pauses:
        await asyncio.sleep(pause)
        assert (await client.ask()).status == 200
    await eventually(lambda: worker.finished == len(pauses))
    assert worker.started == len(pauses)
