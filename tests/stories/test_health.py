"""Workers come and go, fail and recover; requests go where they are served."""

import asyncio
import itertools
import logging

import pytest

from router.events import WorkerChanged
from tests.support.client import STREAM, Client, get, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import Worker, event, reply, stream

INTERVAL = 0.2
QUICK = {"health": {"interval_seconds": INTERVAL, "timeout_seconds": 0.5}}
SLACK = 2.0
HANG = reply(stop=-1, ending="hang")


async def status(running: Running, path: str) -> int:
    return (await ask(running.port, get(path))).status


def prompt(at: int) -> bytes:
    return post(b'{"model": "m", "prompt": "%d %s"}' % (at, b"text " * 100), "/v1/completions")


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_fleet_that_is_up_is_ready_within_a_second(stage: Stage) -> None:
    workers = [await stage.worker() for _ in range(5)]
    running = await stage.gateway(*workers, ready=False, health={"interval_seconds": 30})
    await eventually(lambda: len(running.house.fleet.ready()) == 5, within=3.0)
    assert await status(running, "/readyz") == await status(running, "/ping") == 200


@pytest.mark.parametrize("way", ["refuses", "answers 503", "hangs"])
async def test_readiness_follows_the_last_worker_both_ways(stage: Stage, way: str) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, **QUICK)
    assert await status(running, "/readyz") == 200
    went = now()
    if way == "refuses":
        await worker.refuse()
    elif way == "answers 503":
        worker.healthy = 503
    else:
        worker.probe_delay = 60
    await eventually(lambda: not running.house.fleet.ready())
    limit = 3 * INTERVAL + (3 * 0.5 if way == "hangs" else 0.0)
    assert now() - went < limit + SLACK
    answer = await ask(running.port, get("/readyz"))
    assert (answer.status, answer.json()) == (503, {"ready": False, "workers_ready": 0, "draining": False})
    assert await status(running, "/ping") == 503
    assert await status(running, "/healthz") == 200
    if way == "refuses":
        await worker.listen()
    worker.heal()
    await eventually(lambda: running.state(worker) == "ready")
    assert await status(running, "/readyz") == 200
    assert (await ask(running.port, post())).status == 200


async def test_one_late_probe_removes_nobody(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, **QUICK)
    for _ in range(3):
        worker.healthy = 503
        seen = len(worker.probes)
        await eventually(lambda: running.state(worker) == "suspect")
        worker.healthy = 200
        await eventually(lambda: running.state(worker) == "ready")
        assert len(worker.probes) > seen
    assert "down" not in {change.after.value for change in running.told(WorkerChanged)}


@pytest.mark.parametrize("policy", ["random", "prefix_cost"])
async def test_500s_open_the_breaker_though_probes_are_good(stage: Stage, policy: str) -> None:
    bad, good = await stage.worker(answer=reply(b"{}", 500)), await stage.worker()
    running = await stage.gateway(bad, good, routing={"policy": policy})
    statuses = [(await ask(running.port, prompt(at))).status for at in range(80)]
    assert 0 < len(bad.requests) < 12
    assert statuses.count(500) == len(bad.requests)
    assert statuses.count(200) == 80 - len(bad.requests)
    assert running.state(bad) != "ready"
    if policy == "random":  # the default policy asks it so seldom that it is suspect only
        assert running.state(bad) == "down"
        bad.heal()
        await eventually(lambda: running.state(bad) in ("trial", "ready"), within=20)
    bad.heal()
    fresh = itertools.count(80)
    while running.state(bad) != "ready":  # the test's own time limit ends it
        assert (await ask(running.port, prompt(next(fresh)))).status == 200
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("code", [400, 404, 413, 422])
async def test_a_clients_mistakes_do_not_speak_against_a_worker(stage: Stage, code: int) -> None:
    worker = await stage.worker(answer=reply(b"{}", code))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    assert {(await client.ask(prompt(at))).status for at in range(50)} == {code}
    assert running.state(worker) == "ready"
    worker.heal()
    assert (await client.ask()).status == 200
    assert {change.after.value for change in running.told(WorkerChanged)} == {"ready"}


@pytest.mark.parametrize("code", [429, 503])
async def test_back_pressure_does_not_speak_against_a_worker_either(stage: Stage, code: int) -> None:
    worker = await stage.worker(answer=reply(b"{}", code))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    assert {(await client.ask(prompt(at))).status for at in range(30)} == {code}
    assert running.state(worker) == "ready"
    worker.heal()
    assert (await client.ask()).status == 200


async def test_a_worker_that_was_busy_a_moment_ago_is_asked_last(stage: Stage) -> None:
    busy, good = await stage.worker(answer=reply(b"{}", 503)), await stage.worker()
    running = await stage.gateway(busy, good)
    statuses = [(await ask(running.port, prompt(at))).status for at in range(40)]
    assert set(statuses) == {200}
    assert len(busy.requests) < 10


async def test_when_all_look_bad_those_that_were_well_are_still_tried(stage: Stage) -> None:
    """Probes err together more often than workers die together."""
    workers = [await stage.worker() for _ in range(2)]
    fresh = await stage.worker(healthy=503)
    running = await stage.gateway(*workers, fresh, ready=False, **QUICK)
    await running.ready(2)
    for worker in workers:
        worker.healthy = 500
    await eventually(lambda: [running.state(worker) for worker in workers] == ["down", "down"])
    assert await status(running, "/readyz") == 503
    assert (await running.metrics())["prefix_router_panic"] == 1
    assert {(await ask(running.port, prompt(at))).status for at in range(20)} == {200}
    assert fresh.requests == []
    for worker in workers:
        worker.heal()
    await eventually(lambda: not running.house.fleet.panicking)
    assert (await running.metrics())["prefix_router_panic"] == 0


async def test_a_worker_that_was_never_well_gets_nothing(stage: Stage) -> None:
    worker = await stage.worker(healthy=503)
    running = await stage.gateway(worker, ready=False)
    await eventually(lambda: len(worker.probes) >= 3)
    answer = await ask(running.port, post())
    assert (answer.status, answer.code) == (503, "no_ready_worker")
    assert answer.one("retry-after")
    assert worker.requests == []
    assert running.state(worker) == "starting"


async def test_a_worker_that_is_ready_late_is_used_then(stage: Stage) -> None:
    worker = await stage.worker(healthy_at=now() + 0.5)
    running = await stage.gateway(worker, ready=False, **QUICK)
    assert (await ask(running.port, post())).status == 503
    await running.ready()
    assert (await ask(running.port, post())).status == 200


async def test_no_worker_at_all_is_a_503(stage: Stage) -> None:
    running = await stage.gateway()
    assert await status(running, "/readyz") == 503
    answer = await ask(running.port, post())
    assert (answer.status, answer.code) == (503, "no_ready_worker")


async def test_a_worker_behind_a_key_is_named_once_in_the_log(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    worker = await stage.worker(key="s3cret")
    with caplog.at_level(logging.ERROR, "router"):
        running = await stage.gateway(worker, ready=False, **QUICK)
        await eventually(lambda: len(worker.probes) >= 4)
    told = [record.getMessage() for record in caplog.records if "401" in record.getMessage()]
    assert len(told) == 1
    assert worker.id in told[0]
    assert "api_key" in told[0]
    assert running.state(worker) == "starting"


async def test_a_worker_behind_a_key_is_ready_with_it(stage: Stage) -> None:
    worker = await stage.worker(key="s3cret", models=("mine",))
    running = await stage.gateway({"url": worker.url, "api_key": "s3cret"})
    listed = (await ask(running.port, get("/v1/models"))).json()
    assert [entry["id"] for entry in listed["data"]] == ["mine"]
    assert (await ask(running.port, post(b'{"model": "mine"}'))).status == 200


async def test_probes_and_requests_heed_no_proxy_variables(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    running = await stage.gateway(await stage.worker())
    assert (await ask(running.port, post())).status == 200


async def test_a_worker_that_hangs_slows_no_other(stage: Stage) -> None:
    stuck = await stage.worker(answer=HANG, models=("stuck",))
    good = await stage.worker(models=("good",))
    running = await stage.gateway(stuck, good)
    waiting: list[Client] = [await stage.client(running) for _ in range(50)]
    for client in waiting:
        await client.send(post(b'{"model": "stuck"}'))
    await eventually(lambda: stuck.running == 50)
    stuck.probe_delay = 60
    began = now()
    for _ in range(20):
        assert (await ask(running.port, post(b'{"model": "good"}'))).status == 200
    assert now() - began < 5.0
    for client in waiting:
        client.drop()
    await eventually(lambda: stuck.aborted == 50)
    stuck.probe_delay = 0.0


async def test_a_worker_that_hangs_is_marked_and_its_prompts_go_elsewhere(stage: Stage) -> None:
    stuck, good = await stage.worker(), await stage.worker()
    running = await stage.gateway(stuck, good, timeouts={"first_byte_seconds": 0.4})
    stuck.answer = HANG
    statuses = [(await ask(running.port, prompt(at % 5))).status for at in range(25)]
    assert set(statuses) <= {200, 504}
    assert statuses.count(504) == len(stuck.requests) < 8
    assert statuses[-5:] == [200] * 5


async def test_the_model_list_is_answered_from_cache_while_a_worker_hangs(stage: Stage) -> None:
    one = await stage.worker(models=("a", "shared"))
    two = await stage.worker(models=("b", "shared"))
    running = await stage.gateway(one, two)
    one.probe_delay = two.probe_delay = 60
    began = now()
    listed = (await ask(running.port, get("/v1/models"))).json()
    assert now() - began < 2.0
    assert listed["object"] == "list"
    assert [entry["id"] for entry in listed["data"]] == ["a", "b", "shared"]
    assert {entry["max_model_len"] for entry in listed["data"]} == {4096}
    one.probe_delay = two.probe_delay = 0.0


async def test_a_worker_without_a_model_list_serves_any(stage: Stage) -> None:
    worker = await stage.worker(models=())
    running = await stage.gateway(worker)
    assert (await ask(running.port, post(b'{"model": "whatever"}'))).status == 200
    assert (await ask(running.port, get("/v1/models"))).json()["data"] == []


async def test_configured_models_count_more_than_published_ones(stage: Stage) -> None:
    worker = await stage.worker(models=("published",))
    running = await stage.gateway({"url": worker.url, "models": ["configured"]})
    assert (await ask(running.port, post(b'{"model": "configured"}'))).status == 200
    assert (await ask(running.port, post(b'{"model": "published"}'))).status == 404


async def test_counts_survive_many_probes_and_a_flap(stage: Stage) -> None:
    """No probe and no change of state resets what is in flight."""
    worker = await stage.worker(answer=stream(event("1"), stop=1, ending="hang"))
    running = await stage.gateway(worker, **QUICK)
    clients = [await stage.client(running) for _ in range(10)]
    for client in clients:
        await client.send(post(STREAM))
        await client.head()
    worker.healthy = 500
    await eventually(lambda: running.state(worker) == "down")
    assert running.seat(worker).load.in_flight == 10
    worker.healthy = 200
    await eventually(lambda: running.state(worker) == "ready")
    assert running.seat(worker).load.in_flight == 10
    for client in clients:
        client.drop()
    await eventually(lambda: running.seat(worker).load.in_flight == 0)


async def test_a_worker_that_restarts_on_its_port_is_used_again(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, **QUICK)
    for _ in range(3):
        assert (await ask(running.port, post())).status == 200
        await worker.refuse()
        await worker.listen()
        assert (await ask(running.port, post())).status == 200


def test_workers_default_to_well() -> None:
    assert Worker().healthy == 200
