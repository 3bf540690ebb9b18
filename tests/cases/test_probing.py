"""59, 60, 63, 64: neither one probe nor a client's mistakes decide who is well, and health answers in time."""

import asyncio
import json
import logging
import time

import pytest

from router.events import WorkerChanged
from tests.support.client import HELLO, STREAM, get, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, Answer, Worker, event, reply, stream

QUICK = {"health": {"interval_seconds": 0.1, "timeout_seconds": 0.5}}
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/rerank",
         "/v1/score", "/tokenize", "/detokenize")  # fmt: skip
BIG = b'{"model": "m", "messages": [{"role": "user", "content": "' + b"a" * 2_000_000 + b'"}]}'


def states(running: Running) -> list[str]:
    return [change.after.value for change in running.told(WorkerChanged)]


async def probes(worker: Worker, count: int) -> None:
    """So many more come."""
    seen = len(worker.probes)
    await eventually(lambda: len(worker.probes) >= seen + count)


# 59: thresholds both ways.


async def test_one_late_probe_in_five_changes_nothing_for_requests(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, health={"interval_seconds": 0.1, "timeout_seconds": 0.2})
    for _ in range(3):
        worker.probe_delay = 5.0
        await eventually(lambda: running.seat(worker).health.failed_probes == 1)
        worker.probe_delay = 0.0
        assert (await ask(running.port, post())).status == 200
        await probes(worker, 3)
    assert "down" not in states(running)
    assert (await ask(running.port, get("/readyz"))).status == 200


async def test_three_failures_and_two_successes(stage: Stage) -> None:
    """Down at the third in a row, not before; back at the second good one in a row, not at the first."""
    worker, other = await stage.worker(), await stage.worker()
    running = await stage.gateway(worker, other, **QUICK)
    seat = running.seat(worker)
    worker.healthy = 503
    await eventually(lambda: seat.health.state.value == "down")
    assert seat.health.failed_probes >= 3
    asked = len(worker.requests)
    for _ in range(10):
        assert (await ask(running.port, post())).status == 200
    assert len(worker.requests) == asked
    worker.healthy = 200
    await eventually(lambda: seat.health.state.value == "ready")
    assert seat.health.good_probes >= 2
    assert states(running)[-1] == "ready"


async def test_slow_is_not_dead(stage: Stage) -> None:
    """Every probe takes most of its time, and a stream goes on for long beside it."""
    worker = await stage.worker(answer=stream(*[event(str(at)) for at in range(10)], DONE, gap=0.1))
    running = await stage.gateway(worker, health={"interval_seconds": 0.1, "timeout_seconds": 2.0})
    worker.probe_delay = 0.5
    got = await ask(running.port, post(STREAM))
    assert got.whole
    assert running.state(worker) == "ready"
    assert states(running) == ["ready"]
    worker.probe_delay = 0.0
    await probes(worker, 2)


async def test_when_all_fail_their_probes_those_that_were_well_serve_on_and_it_is_said(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    workers = [await stage.worker() for _ in range(3)]
    with caplog.at_level(logging.WARNING, "router"):
        running = await stage.gateway(*workers, **QUICK)
        for worker in workers:
            worker.healthy = 500
        await eventually(lambda: [running.state(worker) for worker in workers] == ["down"] * 3)
        for body in (HELLO, STREAM):
            for path in PATHS[:5]:
                assert (await ask(running.port, post(body, path))).status == 200, path
        assert (await ask(running.port, get("/readyz"))).status == 503
        assert (await ask(running.port, get("/healthz"))).status == 200
        for worker in workers:
            worker.heal()
        await eventually(lambda: not running.house.fleet.panicking)
    told = [record.getMessage() for record in caplog.records]
    assert sum("panic" in line for line in told) == 2
    assert (await ask(running.port, get("/readyz"))).status == 200


# 60: a client's mistakes.


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
async def test_one_bad_client_spoils_no_worker_of_the_fleet(stage: Stage, streaming: bool) -> None:
    """Fifty refusals of every kind, over all workers and paths; then a good request at each of them."""
    codes = (400, 401, 403, 404, 405, 409, 413, 422, 499)
    workers = [await stage.worker() for _ in range(3)]
    running = await stage.gateway(*workers, routing={"policy": "round_robin"})
    client = await stage.client(running)
    for at in range(54):
        for worker in workers:
            worker.answer = reply(b'{"error": "maximum context length"}', codes[at % len(codes)])
        body = json.dumps({"model": "m", "input": "x", "messages": [], "stream": streaming}).encode()
        assert (await client.ask(post(body, PATHS[at % len(PATHS)]))).status == codes[at % len(codes)]
    assert [running.state(worker) for worker in workers] == ["ready"] * 3
    for worker in workers:
        worker.heal()
    begun = [len(worker.requests) for worker in workers]
    for _ in range(6):
        assert (await client.ask()).status == 200
    assert [len(worker.requests) - before for worker, before in zip(workers, begun, strict=True)] == [2, 2, 2]
    assert set(states(running)) == {"ready"}


async def test_clients_that_leave_speak_against_nobody(stage: Stage) -> None:
    worker = await stage.worker(answer=reply(stop=-1, ending="hang"))
    running = await stage.gateway(worker)
    for count in range(1, 11):
        client = await stage.client(running)
        await client.send(post())
        await eventually(lambda count=count: worker.started == count)
        client.drop(reset=True)
    await eventually(lambda: worker.aborted == 10)
    assert states(running) == ["ready"]


# 63: health under long prompts.


async def worst_health(running: Running, stop: asyncio.Event, paths: tuple[str, ...] = ("/healthz",)) -> float:
    """The longest that any look took, looking every 50 ms on a connection of its own."""
    worst = 0.0
    while not stop.is_set():
        for path in paths:
            began = time.monotonic()
            assert (await ask(running.port, get(path))).status in (200, 503)
            worst = max(worst, time.monotonic() - began)
        await asyncio.sleep(0.05)
    return worst


@pytest.mark.parametrize("logged", [False, True], ids=["quiet", "logged and scraped"])
async def test_health_answers_while_thirty_long_prompts_come_in(
    stage: Stage, logged: bool, tmp_path: pytest.TempPathFactory
) -> None:
    """Client, worker and gateway share one loop here, so the bound is wide; `bench/streams.py` has the figures."""
    worker = await stage.worker(answer=reply(delay=0.05))
    log = {"log": {"access": str(tmp_path / "access.log")}} if logged else {}
    running = await stage.gateway(worker, timeouts={"connect_seconds": 30}, health={"timeout_seconds": 10}, **log)
    stop = asyncio.Event()
    paths = ("/healthz", "/metrics") if logged else ("/healthz",)
    looking = asyncio.ensure_future(worst_health(running, stop, paths))
    for _ in range(2):
        answers = await asyncio.gather(*[ask(running.port, post(BIG)) for _ in range(30)])
        assert {got.status for got in answers} == {200}
    stop.set()
    assert await looking < 2.5
    assert {len(body) for body in worker.bodies} == {len(BIG)}


# 64: workers behind a key.


async def test_every_look_at_a_worker_shows_its_key(stage: Stage) -> None:
    """Health, model list and metrics, below the address's base path; and nobody else's key."""
    keyed = await stage.worker(key="w0rker", models=("mine",))
    other = await stage.worker(models=("theirs",))
    running = await stage.gateway(
        {"url": keyed.url + "/base/v1", "api_key": "w0rker"}, other,
        health={"interval_seconds": 0.1}, signals={"queue_seconds": 0.1},
    )  # fmt: skip
    await eventually(lambda: keyed.scrapes and other.scrapes)
    listed = (await ask(running.port, get("/v1/models"))).json()["data"]
    assert sorted(entry["id"] for entry in listed) == ["mine", "theirs"]
    looks = keyed.probes + keyed.scrapes
    assert {look.one("authorization") for look in looks} == {b"Bearer w0rker"}
    assert {look.target for look in looks} == {b"/base/health", b"/base/v1/models", b"/base/metrics"}
    assert {look.one("authorization") for look in other.probes + other.scrapes} == {None}


@pytest.mark.parametrize("key", [None, "", "wr0ng"], ids=["none", "empty", "wrong"])
async def test_a_key_that_is_not_taken_is_said_once_and_never_shown(
    stage: Stage, key: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await stage.worker(key="w0rker")
    with caplog.at_level(logging.INFO, "router"):
        running = await stage.gateway({"url": worker.url, "api_key": key}, ready=False, **QUICK)
        await probes(worker, 6)
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(told) == 1
    assert worker.id in told[0]
    assert "401" in told[0]
    assert "api_key" in told[0]
    assert "wr0ng" not in caplog.text
    assert running.state(worker) == "starting"
    assert (await ask(running.port, post())).code == "no_ready_worker"


async def test_a_key_that_stops_to_be_taken_is_said_too(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """It was well, then its key was changed: it goes down and the log says why."""
    worker = await stage.worker(key="0ld")
    with caplog.at_level(logging.INFO, "router"):
        running = await stage.gateway({"url": worker.url, "api_key": "0ld"}, **QUICK)
        worker.key = "new"
        await eventually(lambda: running.state(worker) == "down")
        worker.key = "0ld"
        await eventually(lambda: running.state(worker) == "ready")
    told = [record.getMessage() for record in caplog.records if "api_key" in record.getMessage()]
    assert len(told) == 1
    assert "0ld" not in caplog.text
    assert (await ask(running.port, post())).status == 200


async def test_probes_are_no_generations(stage: Stage) -> None:
    """A probe never asks a model for anything: it costs nothing and says nothing about one model."""
    worker = await stage.worker(answer=Answer())
    await stage.gateway(worker, **QUICK)
    await probes(worker, 5)
    assert worker.requests == []
    assert {probe.method for probe in worker.probes} == {"GET"}
