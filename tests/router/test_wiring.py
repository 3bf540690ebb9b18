"""The wiring: settings in, a built house out."""

import asyncio
import logging
from random import Random
from typing import Any

import pytest

from router.core.mind import Caller
from router.discovery.static import StaticSource
from router.events import Finished, Panicked, WorkerChanged, WorkerLeft
from router.journey import Journey
from router.layers import load
from router.prompt import Prompt
from router.settings import Settings
from router.types import WorkerState, worker_from_url
from router.wiring import Gateway, _log_change, _log_panic
from tests.support.client import get, post
from tests.support.gateway import Stage, ask, eventually
from tests.support.worker import Worker


def settings(**given: object) -> Settings:
    return load([("test", given)], {})[0]


async def test_nothing_runs_before_the_lifespan_begins() -> None:
    before = asyncio.all_tasks()
    gateway = Gateway(settings(workers=["http://w:1"]))
    assert asyncio.all_tasks() == before
    assert gateway.fleet.seats == {}


async def test_the_policy_of_the_settings_is_built_with_its_options() -> None:
    gateway = Gateway(settings(routing={"policy": "prefix_aware", "options": {"prefix_length": 2048}}))
    assert gateway.house.policy_name == "prefix_aware"
    assert type(gateway.house.mind.policy).__module__ == "router.policies.prefix_aware"


async def test_the_client_paths_are_those_of_the_dialects_and_the_passed_through() -> None:
    gateway = Gateway(settings(routing={"pass_through": ["/mine", "/v1/messages"]}))
    paths = gateway.house.paths
    assert {b"/v1/chat/completions", b"/v1/messages", b"/mine"} <= set(paths)
    assert paths[b"/mine"].dialect.name == "openai"
    assert paths[b"/v1/messages"].dialect.name == "anthropic"


async def test_thresholds_come_from_the_settings() -> None:
    gateway = Gateway(settings(health={"unhealthy_after": 7, "healthy_after": 5}))
    assert (gateway.fleet.limits.unhealthy_after, gateway.fleet.limits.healthy_after) == (7, 5)


async def test_how_long_an_ejection_lasts_comes_from_the_settings_and_follows_them() -> None:
    outliers = {"eject_seconds": 7, "eject_most_seconds": 70, "window_seconds": 20, "most_ejected": 0.2}
    made = Gateway(settings(health={"outliers": outliers, "stall_seconds": 9}))
    limits, watch = made.fleet.limits, made.house.watch
    assert (limits.eject_seconds, limits.eject_most, limits.well_seconds) == (7.0, 70.0, 20.0)
    assert (watch.stall_seconds, watch.outliers.limits.most_ejected) == (9.0, 0.2)
    made.adopt(settings(health={"outliers": {"eject_seconds": 8}, "stall_seconds": 0}), {})
    assert (made.fleet.limits.eject_seconds, watch.stall_seconds) == (8.0, 0.0)


async def test_stories_are_journeys(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    assert running.house._tell is Journey


async def test_the_workers_of_the_settings_join_and_are_probed_with_their_keys(stage: Stage) -> None:
    worker = await stage.worker(key="its-key")
    running = await stage.gateway({"url": worker.url, "api_key": "its-key"})
    assert (await ask(running.port, post())).status == 200


async def test_a_reload_of_the_static_set_is_followed(stage: Stage) -> None:
    one, other = await stage.worker(), await stage.worker()
    running = await stage.gateway(one)
    running.gateway.static.replace([worker_from_url(other.url)])
    await eventually(lambda: set(running.seats) == {other.id})
    await running.ready()
    assert running.told(WorkerLeft) == [WorkerLeft(one.id)]
    assert (await ask(running.port, post())).one("x-router-worker") == other.id


async def test_a_source_of_the_settings_stands_beside_their_workers_and_a_reload_takes_it_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed, found = await stage.worker(), await stage.worker()
    told = StaticSource([worker_from_url(found.url)])
    monkeypatch.setattr("router.wiring.build_source", lambda name, options: told)
    running = await stage.gateway(fixed)
    running.gateway.adopt(settings(workers=[fixed.url], discovery={"kubernetes": {"service": "vllm"}}), {})
    await eventually(lambda: set(running.seats) == {fixed.id, found.id})
    await running.ready()
    running.gateway.adopt(settings(workers=[fixed.url]), {})
    assert set(running.seats) == {fixed.id}


def probers(running: object, worker: Worker) -> int:
    return [task.get_name() for task in asyncio.all_tasks()].count(f"probe {worker.id}")


async def test_one_prober_stands_for_a_worker_whatever_changes(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    gateway = running.gateway
    for weight in (2.0, 3.0, 3.0):
        gateway.roster.add(worker_from_url(worker.url, weight=weight))
        gateway.apply()
    await eventually(lambda: probers(running, worker) == 1)
    assert set(gateway._probers) == set(running.seats.values())
    gateway.roster.remove(worker.id)
    gateway.apply()
    await eventually(lambda: probers(running, worker) == 0)
    assert gateway._probers == {}


async def test_a_changed_key_is_used_by_the_next_probe_and_request(stage: Stage) -> None:
    worker = await stage.worker(key="new")
    running = await stage.gateway({"url": worker.url, "api_key": "old"}, ready=False)
    await eventually(lambda: len(worker.probes) > 0)
    running.gateway.roster.add(worker_from_url(worker.url, api_key="new"))
    running.gateway.apply()
    await running.ready()
    assert (await ask(running.port, post())).status == 200


async def test_what_never_became_a_request_is_counted(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    answer = await ask(running.port, post(headers=[("Content-Length", "2"), ("Content-Length", "3")]))
    assert answer.status == 400
    await eventually(lambda: [event.status for event in running.told(Finished)] == [400])
    shown = await running.metrics()
    assert [value for name, value in shown.items() if 'code="400"' in name and "requests_total" in name] == [1]


async def test_the_lifespan_leaves_no_task_behind(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), await stage.worker())
    await ask(running.port, get("/healthz"))
    await running.stop()
    assert not running.own_tasks() - {asyncio.current_task()}


@pytest.mark.parametrize(
    ("after", "level"), [(WorkerState.DOWN, logging.WARNING), (WorkerState.SUSPECT, logging.WARNING),
                         (WorkerState.READY, logging.INFO)]
)  # fmt: skip
def test_a_change_of_state_is_logged_with_its_cause(
    caplog: pytest.LogCaptureFixture, after: WorkerState, level: int
) -> None:
    with caplog.at_level(logging.INFO, "router"):
        _log_change(WorkerChanged("w:1", WorkerState.TRIAL, after, "probe: status 500"))
    (record,) = caplog.records
    assert record.levelno == level
    assert record.message == f"worker w:1: trial -> {after.value} (probe: status 500)"


def test_a_panic_is_logged_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    _log_panic(Panicked(True))
    _log_panic(Panicked(False))
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


# What joined to decide better.


async def test_who_is_alone_or_shares_trusts_no_home_blindly_and_others_do() -> None:
    def trust(**given: Any) -> float:
        mind = Gateway(settings(**given)).house.mind
        return mind.weigh(Prompt(b"x" * 300), Caller()).trust

    assert trust() == 0
    assert trust(share="redis://cache", routing={"replicas": 3}) == 0
    assert trust(routing={"replicas": 3}) > 0


async def test_the_size_of_the_table_and_the_slow_start_come_from_the_settings() -> None:
    gateway = Gateway(settings(routing={"table_hashes": 5000, "slow_start_seconds": 7}))
    assert gateway.fleet.slow_start_seconds == 7
    assert gateway.house.mind.holders.limit == 5000


async def test_the_promise_comes_from_the_settings_in_seconds() -> None:
    slo = Gateway(settings(routing={"slo": {"first_token_ms": 250, "per_uncached_token_ms": 2}})).house.slo
    assert (slo.first_token, slo.per_uncached_token) == (0.25, 0.002)


async def test_a_shadow_is_built_beside_the_policy_and_shares_no_dice_with_it() -> None:
    gateway = Gateway(settings(routing={"policy": "random", "shadow": "power_of_two"}))
    assert type(gateway.house.shadow).__module__ == "router.policies.power_of_two"
    assert type(gateway.house.mind.policy).__module__ == "router.policies.random"
    own = {id(each) for each in vars(gateway.house.mind.policy).values() if isinstance(each, Random)}
    theirs = {id(each) for each in vars(gateway.house.shadow).values() if isinstance(each, Random)}
    assert own
    assert theirs
    assert not own & theirs, "what the shadow throws would change where requests go"


async def test_without_a_shadow_nobody_is_asked() -> None:
    assert Gateway(settings()).house.shadow is None
