"""Workers that a Kubernetes API tells of: they come, move, end and go while requests run, and so do the settings."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.events import WorkerLeft
from router.layers import load
from router.reload import SettingsSource
from tests.support.client import HELLO, STREAM, get, post
from tests.support.gateway import QUICK, Running, Stage, ask, eventually, merged
from tests.support.kube_api import KubeApi, kube_api, kubeconfig, pod, slice_of
from tests.support.worker import DONE, Worker, event, stream


@pytest.fixture
def api() -> Iterator[KubeApi]:
    with kube_api() as made:
        yield made


def told(worker: Worker, name: str, **more: Any) -> dict[str, Any]:
    """A slice with this worker alone, as the pod of this name: all live at one address, at ports of their own."""
    service = more.pop("service", "vllm")
    zone = more.pop("zone", None)
    return slice_of(name, pod(name, "127.0.0.1", zone=zone, **more), port=worker.port, service=service)


class Cluster:
    """A gateway that learns its workers from the API, and its settings as a file would hold them."""

    def __init__(self, stage: Stage, api: KubeApi, folder: Path) -> None:
        self.stage, self.api = stage, api
        self.config = str(kubeconfig(folder, api.url, {"token": "s3cret-token"}))
        self.running: Running

    def settings(self, **kubernetes: Any) -> dict[str, Any]:
        return {"discovery": {"kubernetes": {"service": "vllm", "kubeconfig": self.config, **kubernetes}}}

    async def start(self, **kubernetes: Any) -> Running:
        with self.api.changed:  # it answers once the gateway stands
            self.running = await self.stage.gateway(ready=False, **self.settings(**kubernetes))
        return self.running

    async def reload(self, settings: dict[str, Any]) -> dict[str, Any]:
        source = SettingsSource(lambda: load([("file", merged(QUICK, settings))], {}))
        self.running.server.read_with(source)
        answer = await ask(self.running.port, post(b"", "/admin/reload"))
        assert answer.status == 200, answer.body
        found: dict[str, Any] = answer.json()
        return found

    async def ready(self, *names: str) -> None:
        def are() -> bool:
            return sorted(seat.id for seat in self.running.house.fleet.ready()) == sorted(names)

        await eventually(are, lambda: f"{self.running.house.fleet}")


@pytest.fixture
def cluster(stage: Stage, api: KubeApi, tmp_path: Path) -> Cluster:
    return Cluster(stage, api, tmp_path)


async def test_pods_are_workers_under_their_names_with_their_zones(cluster: Cluster) -> None:
    one, other = await cluster.stage.worker(), await cluster.stage.worker()
    cluster.api.put(told(one, "vllm-0", zone="z1"), told(other, "vllm-1"))
    running = await cluster.start()
    await cluster.ready("vllm-0", "vllm-1")
    rows = {row["id"]: row for row in (await ask(running.port, get("/admin/workers"))).json()["workers"]}
    assert rows["vllm-0"]["labels"] == {"zone": "z1", "node": "node-in-z1"}
    assert rows["vllm-0"]["url"] == one.url
    answer = await ask(running.port, post(HELLO))
    assert answer.status == 200
    assert answer.one("x-router-worker") in rows


async def test_a_pod_that_ends_gets_no_new_request_and_its_stream_finishes(cluster: Cluster) -> None:
    gate = asyncio.Event()
    old = await cluster.stage.worker(answer=stream(event("1"), gate, event("2"), DONE))
    new = await cluster.stage.worker()
    cluster.api.put(told(old, "vllm-0"))
    running = await cluster.start()
    await cluster.ready("vllm-0")
    client = await cluster.stage.client(running)
    await client.send(post(STREAM))
    answer = await client.head()
    cluster.api.put(told(new, "vllm-1"))
    await cluster.ready("vllm-0", "vllm-1")
    cluster.api.put(told(old, "vllm-0", ready=False, serving=True, terminating=True))
    await cluster.ready("vllm-1")
    for _ in range(5):
        assert (await ask(running.port, post())).one("x-router-worker") == "vllm-1"
    gate.set()
    await client.rest(answer)
    assert answer.body == event("1") + event("2") + DONE
    assert old.started == 1
    assert running.told(WorkerLeft) == [WorkerLeft("vllm-0")]


async def test_a_pod_that_moves_to_another_slice_stays_as_it_is(cluster: Cluster) -> None:
    gate = asyncio.Event()
    kept = await cluster.stage.worker(answer=stream(gate, DONE))
    cluster.api.put(told(kept, "vllm-0"))
    running = await cluster.start()
    await cluster.ready("vllm-0")
    seat = running.seats["vllm-0"]
    client = await cluster.stage.client(running)
    await client.send(post(STREAM))
    await eventually(lambda: kept.running == 1)
    moved = slice_of("other", pod("vllm-0", "127.0.0.1"), port=kept.port, made="2026-02-02T00:00:00Z")
    cluster.api.put(moved)
    cluster.api.remove("vllm-0")
    another = await cluster.stage.worker()
    cluster.api.put(told(another, "vllm-1"))
    await cluster.ready("vllm-0", "vllm-1")
    assert running.seats["vllm-0"] is seat
    assert (seat.load.in_flight, running.told(WorkerLeft)) == (1, [])
    gate.set()
    assert (await client.answer()).status == 200


async def test_a_pod_that_came_back_elsewhere_is_the_same_place_for_the_same_prefixes(cluster: Cluster) -> None:
    workers = [await cluster.stage.worker() for _ in range(3)]
    cluster.api.put(*(told(worker, f"vllm-{at}") for at, worker in enumerate(workers)))
    running = await cluster.start()
    await cluster.ready("vllm-0", "vllm-1", "vllm-2")
    homes = [running.house.fleet.ring.home(at * 2**56) for at in range(256)]
    again = await cluster.stage.worker()
    cluster.api.put(told(workers[1], "vllm-1", ready=False, terminating=True))
    await cluster.ready("vllm-0", "vllm-2")
    cluster.api.put(told(again, "vllm-1"))
    await cluster.ready("vllm-0", "vllm-1", "vllm-2")
    assert [running.house.fleet.ring.home(at * 2**56) for at in range(256)] == homes
    assert running.seats["vllm-1"].worker.address.port == again.port


async def test_while_the_api_is_away_requests_are_served(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.api.put(told(await cluster.stage.worker(), "vllm-0"))
    running = await cluster.start()
    await cluster.ready("vllm-0")
    cluster.api.refusal = (503, {})
    cluster.api.end_watches("cut")
    await eventually(lambda: any("known before stay" in message for message in caplog.messages))
    for _ in range(3):
        assert (await ask(running.port, post())).status == 200
    cluster.api.refusal = None
    cluster.api.put(told(await cluster.stage.worker(), "vllm-1"))
    await cluster.ready("vllm-0", "vllm-1")


async def test_workers_of_the_settings_and_of_an_admin_stand_beside_those_of_the_cluster(cluster: Cluster) -> None:
    cluster.api.put(told(await cluster.stage.worker(), "vllm-0"))
    fixed, added = await cluster.stage.worker(), await cluster.stage.worker()
    running = await cluster.start()
    await cluster.reload({"workers": [fixed.url], **cluster.settings()})
    body = b'{"url": "%s", "id": "added"}' % added.url.encode()
    assert (await ask(running.port, post(body, "/admin/workers"))).status == 201
    await cluster.ready("vllm-0", fixed.id, "added")
    assert (await ask(running.port, b"DELETE /admin/workers/vllm-0 HTTP/1.1\r\nhost: x\r\n\r\n")).status == 204
    await cluster.ready(fixed.id, "added")
    cluster.api.put(told(await cluster.stage.worker(), "vllm-1"))
    await cluster.ready("vllm-1", fixed.id, "added")


async def test_changed_settings_swap_the_source_and_one_watch_is_left(cluster: Cluster) -> None:
    gate = asyncio.Event()
    old = await cluster.stage.worker(answer=stream(event("1"), gate, DONE))
    new = await cluster.stage.worker(key="its-key")
    cluster.api.put(told(old, "vllm-0"), told(new, "other-0", service="other"))
    running = await cluster.start()
    await cluster.ready("vllm-0")
    client = await cluster.stage.client(running)
    await client.send(post(STREAM))
    answer = await client.head()
    changed = await cluster.reload(cluster.settings(service="other", worker={"api_key": "its-key"}))
    assert changed == {
        "changed": ["discovery.kubernetes.service", "discovery.kubernetes.worker.api_key"], "restart": []
    }  # fmt: skip
    await cluster.ready("other-0")
    assert (await ask(running.port, post())).one("x-router-worker") == "other-0"
    await eventually(lambda: cluster.api.open_watches == 1)
    gate.set()
    await client.rest(answer)
    assert answer.body == event("1") + DONE
    cluster.api.put(told(old, "vllm-5"), told(old, "other-5", service="other"))
    await cluster.ready("other-0", "other-5")


async def test_settings_that_stay_keep_the_watch_and_those_taken_out_end_it(cluster: Cluster) -> None:
    cluster.api.put(told(await cluster.stage.worker(), "vllm-0"))
    running = await cluster.start()
    await cluster.ready("vllm-0")
    await eventually(lambda: cluster.api.open_watches == 1)
    await cluster.reload({**cluster.settings(), "queue": {"max": 5}})
    await cluster.reload({**cluster.settings(), "queue": {"max": 6}})
    assert (cluster.api.lists, cluster.api.watches) == (1, 1)
    fixed = await cluster.stage.worker()
    await cluster.reload({"workers": [fixed.url]})
    await cluster.ready(fixed.id)
    assert set(running.seats) == {fixed.id}
    cluster.api.put(told(fixed, "vllm-1"))
    await eventually(lambda: cluster.api.open_watches == 0)


async def test_the_api_s_token_is_in_no_log_no_metric_and_no_answer(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    cluster.api.tokens = {"s3cret-token"}
    cluster.api.put(told(await cluster.stage.worker(), "vllm-0"))
    running = await cluster.start()
    await cluster.ready("vllm-0")
    cluster.api.tokens = {"another"}
    cluster.api.end_watches("cut")
    await eventually(lambda: any("refuses the credentials" in message for message in caplog.messages))
    for path in ("/metrics", "/admin/config", "/admin/workers"):
        assert b"s3cret-token" not in (await ask(running.port, get(path))).body
    assert "s3cret-token" not in caplog.text
