"""The settings are changed while requests run: what is new counts at once, what is under way goes on undisturbed."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from router.layers import SettingsError, load
from router.reload import SettingsSource
from tests.support.client import CHAT, HELLO, STREAM, Response, get, post
from tests.support.gateway import QUICK, Running, Stage, ask, eventually, merged
from tests.support.worker import DONE, Answer, Seen, Worker, event, stream

SYSTEM = "You are the assistant of a large shop. " * 80


class File:
    """What the gateway reads its settings from, in place of a file: `await file.now(...)` is what an admin does."""

    def __init__(self, running: Running, *workers: Worker | Mapping[str, Any], **settings: Any) -> None:
        self.running = running
        self._settings: dict[str, Any] = {}
        self.holds(*workers, **settings)
        running.server.read_with(SettingsSource(lambda: load([("file", self._settings)], {})))

    def holds(self, *workers: Worker | Mapping[str, Any], **settings: Any) -> None:
        given = [each.url if isinstance(each, Worker) else each for each in workers]
        self._settings = merged(merged(QUICK, {"workers": given}), settings)

    async def now(self, *workers: Worker | Mapping[str, Any], **settings: Any) -> dict[str, Any]:
        self.holds(*workers, **settings)
        answer = await reload(self.running)
        assert answer.status == 200, answer.body
        told: dict[str, Any] = answer.json()
        return told


async def reload(running: Running, *headers: tuple[str, str]) -> Response:
    return await ask(running.port, post(b"", "/admin/reload", headers))


async def rows(running: Running) -> dict[str, Any]:
    return {row["id"]: row for row in (await ask(running.port, get("/admin/workers"))).json()["workers"]}


def chat(user: str) -> bytes:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
    return json.dumps({"model": "m", "messages": messages}).encode()


def probers(running: Running) -> list[str]:
    return sorted(task.get_name() for task in running.own_tasks() if task.get_name().startswith("probe "))


async def test_a_worker_that_left_the_file_finishes_its_stream_and_gets_no_new_request(stage: Stage) -> None:
    gate = asyncio.Event()
    old = await stage.worker(answer=stream(event("1"), gate, event("2"), DONE))
    new = await stage.worker()
    running = await stage.gateway(old)
    file = File(running, old)
    client = await stage.client(running)
    await client.send(post(STREAM))
    answer = await client.head()
    assert (await file.now(new))["changed"] == ["workers"]
    assert set(running.seats) == {new.id}
    await running.ready()
    assert (await ask(running.port, post())).one("x-router-worker") == new.id
    gate.set()
    await client.rest(answer)
    assert answer.body == event("1") + event("2") + DONE
    assert old.started == 1


async def test_a_worker_that_stays_keeps_what_is_in_flight_what_was_learnt_and_one_prober(stage: Stage) -> None:
    gate = asyncio.Event()
    kept = await stage.worker(answer=stream(gate, DONE))
    running = await stage.gateway(kept)
    file = File(running, kept)
    seat = running.seat(kept)
    client = await stage.client(running)
    await client.send(post(chat("first")))
    await eventually(lambda: kept.running == 1)
    seat.load.pace = 1234.5
    for weight in (2.0, 3.0):
        await file.now({"url": kept.url, "weight": weight}, await stage.worker())
        assert running.seat(kept) is seat
        assert (seat.load.in_flight, seat.load.pace, seat.weight) == (1, 1234.5, weight)
    await file.now({"url": kept.url, "weight": 3}, health={"interval_seconds": 0.2, "unhealthy_after": 7})
    assert seat.health.limits.unhealthy_after == 7
    await eventually(lambda: probers(running) == [f"probe {kept.id}"])
    before = len(kept.probes)
    await eventually(lambda: len(kept.probes) > before + 1)
    assert probers(running) == [f"probe {kept.id}"]
    gate.set()
    assert (await client.answer()).status == 200
    assert seat.load.in_flight == 0


async def test_a_new_policy_decides_the_next_request_and_finds_what_was_learnt(stage: Stage) -> None:
    one, other = await stage.worker(), await stage.worker()
    running = await stage.gateway(one, other, routing={"policy": "round_robin"})
    file = File(running, one, other, routing={"policy": "round_robin"})
    first = await ask(running.port, post(chat("first")))
    told = await file.now(one, other, routing={"policy": "prefix_cost", "options": {"factor": 5}})
    assert told == {"changed": ["routing.policy", "routing.options"], "restart": []}
    second = await ask(running.port, post(chat("second")))
    assert second.one("x-router-worker") == first.one("x-router-worker"), "the table knows who holds the prefix"
    assert [each.one("x-router-policy") for each in (first, second)] == ["round_robin", "prefix_cost"]
    shown = await running.metrics()
    by_policy = {name: value for name, value in shown.items() if "decisions_total{" in name and "shadow" not in name}
    assert sum(value for name, value in by_policy.items() if 'policy="round_robin"' in name) == 1
    assert sum(value for name, value in by_policy.items() if 'policy="prefix_cost"' in name) == 1


async def test_a_policy_that_stays_keeps_its_own_state(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    file, policy = File(running, worker), running.house.mind.policy
    await file.now(worker, routing={"max_tries": 7})
    assert running.house.mind.policy is policy
    assert running.house.max_tries == 7


async def test_a_shadow_comes_and_goes(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    file = File(running, worker)
    await file.now(worker, routing={"shadow": "random"})
    await ask(running.port, post(chat("first")))
    shadowed = [value for name, value in (await running.metrics()).items() if "shadow_decisions_total{" in name]
    assert sum(shadowed) == 1
    await file.now(worker)
    assert running.house.shadow is None
    await ask(running.port, post(chat("second")))
    assert [value for name, value in (await running.metrics()).items() if "shadow_decisions_total{" in name] == shadowed


async def test_what_an_admin_drained_and_added_stays(stage: Stage) -> None:
    drained, added, late = await stage.worker(), await stage.worker(), await stage.worker()
    running = await stage.gateway(drained)
    file = File(running, drained)
    await ask(running.port, post(b"", f"/admin/workers/{drained.id}/drain"))
    await ask(running.port, post(json.dumps({"url": added.url}).encode(), "/admin/workers"))
    await file.now({"url": drained.url, "weight": 2}, late)
    await eventually(lambda: running.state(late) == running.state(added) == "ready")
    shown = {name: row["state"] for name, row in (await rows(running)).items()}
    assert shown == {drained.id: "draining", added.id: "ready", late.id: "ready"}


async def test_who_waits_is_let_in_by_a_higher_limit(stage: Stage) -> None:
    gates: list[asyncio.Event] = []

    def gated(_: Seen) -> Answer:
        gates.append(asyncio.Event())
        return stream(gates[-1], DONE)

    worker = await stage.worker(answer=gated)
    running = await stage.gateway({"url": worker.url, "max_in_flight": 1})
    file = File(running, {"url": worker.url, "max_in_flight": 1})
    asking = [asyncio.ensure_future(ask(running.port, post())) for _ in range(3)]
    await eventually(lambda: len(running.house.room) == 2)
    await file.now({"url": worker.url, "max_in_flight": 2}, queue={"wait_seconds": 77})
    await eventually(lambda: worker.running == 2)
    assert (len(running.house.room), running.house.room.wait_seconds) == (1, 77)
    for at in range(3):
        await eventually(lambda at=at: len(gates) > at)
        gates[at].set()
    assert [(await each).status for each in asking] == [200] * 3


async def test_who_waits_for_a_worker_that_leaves_is_told_or_goes_elsewhere(stage: Stage) -> None:
    gate = asyncio.Event()
    full, other = await stage.worker(answer=stream(gate, DONE)), await stage.worker()
    running = await stage.gateway({"url": full.url, "max_in_flight": 1})
    file = File(running, {"url": full.url, "max_in_flight": 1})
    first = asyncio.ensure_future(ask(running.port, post()))
    await eventually(lambda: full.running == 1)
    waiting = asyncio.ensure_future(ask(running.port, post()))
    await eventually(lambda: len(running.house.room) == 1)
    await file.now(other)
    answer = await waiting
    assert answer.status in (200, 503)
    assert len(running.house.room) == 0
    gate.set()
    assert (await first).status == 200


async def test_limits_and_times_count_from_the_next_request(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    file = File(running, worker)
    assert (await ask(running.port, post(HELLO))).status == 200
    await file.now(worker, limits={"body_bytes": 20})
    assert (await ask(running.port, post(HELLO))).status == 413
    hanging = await stage.worker(answer=stream(event("1"), stop=-1, ending="hang"))
    await file.now(hanging, timeouts={"first_byte_seconds": 0.3})
    await running.ready()
    assert (await ask(running.port, post(HELLO))).status == 504


async def test_the_times_of_connections_that_are_open_change_too(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    file = File(running, worker)
    client = await stage.client(running)
    assert (await client.ask()).status == 200
    worker.answer = stream(event("1"), stop=-1, ending="hang")
    await file.now(worker, timeouts={"first_byte_seconds": 0.3})
    assert (await client.ask()).status == 504


async def test_keys_are_asked_for_as_soon_as_there_are_any(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    file = File(running, worker)
    client = await stage.client(running)
    assert (await client.ask()).status == 200
    stage.headers = [("Authorization", "Bearer second")]
    await file.now(worker, auth={"api_keys": ["first"]})
    assert (await client.ask()).status == 401, "on the connection that is open, too"
    for key in ("first", "second"):
        await file.now(worker, auth={"api_keys": [key]})
        assert (await ask(running.port, post())).status == 401
        assert (await ask(running.port, post(HELLO, CHAT, [("Authorization", f"Bearer {key}")]))).status == 200
    assert (await ask(running.port, post(HELLO, CHAT, [("Authorization", "Bearer first")]))).status == 401


async def test_the_admin_token_is_asked_for_from_then_on(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    file = File(running, worker)
    await file.now(worker, admin_token="secret")
    assert (await reload(running)).status == 403
    assert (await reload(running, ("Authorization", "Bearer secret"))).status == 200


async def test_the_settings_that_count_are_shown_with_their_origin(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    file = File(running, worker)

    async def shown() -> dict[str, Any]:
        settings = (await ask(running.port, get("/admin/config"))).json()["settings"]
        return {row["path"]: (row["value"], row["origin"]) for row in settings}

    assert (await shown())["queue.max"] == (1000, "default")
    told = await file.now(worker, queue={"max": 5}, listen={"port": 99}, share="redis://nowhere:1/0")
    assert told == {"changed": ["queue.max"], "restart": ["listen.port", "share"]}
    after = await shown()
    assert after["queue.max"] == (5, "file")
    assert after["listen.port"] == (8080, "default"), "what does not count is not shown"
    assert after["share"] == (None, "default")
    again = await file.now(worker, queue={"max": 5}, listen={"port": 99})
    assert again == {"changed": [], "restart": ["listen.port"]}


async def test_bad_settings_change_nothing_and_every_fault_is_told(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    file = File(running, worker)
    file.holds(worker, queue={"max": "many"}, nonsense=1, limits={"body_bytes": 0})
    refused = await reload(running)
    assert (refused.status, refused.code) == (422, "bad_settings")
    message = refused.json()["error"]["message"]
    faults = ("queue.max: ", "nonsense: there is no such setting", "limits.body_bytes: ")
    assert all(fault in message for fault in faults)
    for fault in faults:
        assert len([record for record in caplog.records if fault in record.message]) == 1, "logged once"
    assert running.house.most_body_bytes == 67_108_864
    assert (await running.metrics())["prefix_router_config_reload_failed"] == 1
    assert (await ask(running.port, post())).status == 200
    await file.now(worker)
    assert (await running.metrics())["prefix_router_config_reload_failed"] == 0


async def test_a_source_that_cannot_be_read_changes_nothing(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)

    def unread() -> Any:
        raise SettingsError(["--config settings.yaml: Permission denied"])

    running.server.read_with(SettingsSource(unread))
    refused = await reload(running)
    assert (refused.status, refused.json()["error"]["message"]) == (422, "--config settings.yaml: Permission denied")
    assert set(running.seats) == {worker.id}


async def test_a_policy_that_cannot_be_built_changes_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    file = File(running, worker)

    def fails(*_: Any) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr("router.policies.random.build", fails)
    file.holds(worker, routing={"policy": "random"}, queue={"max": 7})
    refused = await reload(running)
    assert refused.status == 422
    assert "routing.policy: random cannot be built" in refused.json()["error"]["message"]
    assert (running.house.policy_name, running.house.room.most) == ("prefix_cost", 1000)


async def test_what_fails_half_way_is_taken_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    file, adopt = File(running, worker), running.gateway.outside.adopt

    def fails_once(settings: Any) -> None:
        monkeypatch.setattr(running.gateway.outside, "adopt", adopt)
        raise RuntimeError("half way")

    monkeypatch.setattr(running.gateway.outside, "adopt", fails_once)
    file.holds(worker, await stage.worker(), queue={"max": 7}, routing={"policy": "random"})
    assert (await reload(running)).status == 422
    assert (running.house.policy_name, running.house.room.most) == ("prefix_cost", 1000)
    assert set(running.seats) == {worker.id}
    assert running.gateway.settings.queue.max == 1000


async def test_queues_are_looked_at_once_that_is_asked_for(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    file = File(running, worker)
    queues = running.gateway.outside._queues
    await file.now(worker, signals={"queue_seconds": 0.05})
    renewed = running.gateway.outside._queues
    assert renewed is not None
    assert renewed is not queues
    (poll,) = renewed._polls.values()
    await eventually(lambda: poll.looks + poll.failed > 1)


async def test_reloads_at_one_time_are_made_one_after_the_other(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    file = File(running, worker)
    file.holds(worker, queue={"max": 5})
    answers = await asyncio.gather(*(reload(running) for _ in range(5)))
    assert sorted(answer.json()["changed"] for answer in answers) == [[], [], [], [], ["queue.max"]]


async def test_many_reloads_leave_nothing_behind(stage: Stage) -> None:
    worker, other = await stage.worker(), await stage.worker()
    running = await stage.gateway(worker)
    file = File(running, worker)
    for at in range(20):
        both = [worker, other] if at % 2 else [worker]
        await file.now(
            *both,
            routing={"policy": "random" if at % 2 else "prefix_cost", "shadow": "random" if at % 3 else None},
            health={"interval_seconds": 0.3 + at % 2},
            signals={"queue_seconds": at % 2},
        )
        assert (await ask(running.port, post())).status == 200
    await file.now(worker)
    await eventually(lambda: probers(running) == [f"probe {worker.id}"])
    assert set(running.gateway._probers) == set(running.house._pools) == {running.seat(worker)}
    queues = running.gateway.outside._queues
    assert queues is not None
    assert set(queues._polls) == {running.seat(worker)}
    first = [value for name, value in (await running.metrics()).items() if "requests_total{" in name and "200" in name]
    assert sum(first) == 20
