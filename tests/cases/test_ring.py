"""Workers come, go and are written in many ways: only a worker's own keys move, and nothing remembers one that left."""

import json
from random import Random
from typing import Any

import pytest

from tests.support.client import Client, Response, post
from tests.support.endpoints import CHAT
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import Worker

DICE = Random(1)
KEYS = [DICE.randrange(2**64) for _ in range(10_000)]
SOME = 120  # asked over sockets


async def admin(running: Running, path: str, body: Any = None, method: str = "POST") -> Response:
    data = b"" if body is None else json.dumps(body).encode()
    return await ask(running.port, post(data, f"/admin/workers{path}").replace(b"POST", method.encode(), 1))


async def remove(running: Running, worker_id: str) -> None:
    assert (await admin(running, f"/{worker_id}", method="DELETE")).status == 204


async def add(running: Running, worker: Worker, **fields: Any) -> None:
    assert (await admin(running, "", {"url": worker.url, **fields})).status == 201
    await eventually(lambda: running.state(worker) == "ready")


def homes(running: Running) -> list[str | None]:
    return [running.house.fleet.ring.home(key) for key in KEYS]


async def places(running: Running) -> list[str]:
    client = await Client.connect(running.port)
    found = [(await client.ask(CHAT.request(f"You know all of subject {at}. " * 20, "Hi"))) for at in range(SOME)]
    await client.close()
    return [answer.one("x-router-worker") or "" for answer in found]


@pytest.mark.parametrize("policy", ["prefix_bounded", "prefix_aware", "prefix_cost"])
async def test_only_the_keys_of_a_worker_that_left_move_and_it_gets_them_back(stage: Stage, policy: str) -> None:
    workers = [await stage.worker() for _ in range(8)]
    running = await stage.gateway(*workers, routing={"policy": policy, "slow_start_seconds": 0})
    before, ring = await places(running), homes(running)
    assert len(set(before)) == 8
    for leaving in (workers[3], workers[0]):
        await remove(running, leaving.id)
        moved = [(then, now) for then, now in zip(ring, homes(running), strict=True) if then != now]
        assert {then for then, _ in moved} == {leaving.id}
        assert len(moved) == ring.count(leaving.id)
        assert len({now for _, now in moved}) == 7, "they are spread over all that stay"
        without = await places(running)
        assert all(now == then for then, now in zip(before, without, strict=True) if then != leaving.id)
        assert leaving.id not in without
        await add(running, leaving)
        assert homes(running) == ring
        if policy == "prefix_cost":
            before = await places(running)
        if policy != "prefix_cost":  # by cost they stay where they are warm now
            assert await places(running) == before


async def test_many_comings_and_goings_in_any_order_leave_the_ring_as_it_was(stage: Stage) -> None:
    workers = [await stage.worker() for _ in range(6)]
    running = await stage.gateway(*workers)
    ring = homes(running)
    dice = Random(4)
    for _ in range(6):
        gone = dice.sample(workers, dice.randrange(1, 5))
        for worker in gone:
            await remove(running, worker.id)
        assert not {worker.id for worker in gone} & set(homes(running))
        for worker in dice.sample(gone, len(gone)):
            await add(running, worker)
        assert homes(running) == ring


async def test_a_worker_registered_again_is_one_worker_with_its_new_models(stage: Stage) -> None:
    worker, other = await stage.worker(models=("ignored",)), await stage.worker(models=("third",))
    running = await stage.gateway(other)
    port = worker.port
    await add(running, worker, models=["first"])
    before = homes(running)

    async def asked(model: str) -> Response:
        return await ask(running.port, post(json.dumps({"model": model, "messages": []}).encode()))

    assert (await asked("first")).status == 200
    spellings = [f"http://127.0.0.1:{port}/", f"HTTP://127.0.0.1:{port}/v1", f" http://127.0.0.1:{port}/v1/ ",
                 f"http://127.0.0.1:0{port}"]  # fmt: skip
    for url in spellings:
        assert (await admin(running, "", {"url": url, "models": ["second"]})).status == 200, url
        assert set(running.seats) == {worker.id, other.id}, url
    assert homes(running) == before, "no double share"
    old = await asked("first")
    assert (old.status, old.code) == (404, "model_not_found")
    assert (await asked("second")).one("x-router-worker") == worker.id
    listed = json.loads((await ask(running.port, b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")).body)
    assert "first" not in {entry["id"] for entry in listed["data"]}
    await remove(running, worker.id)
    for model in ("first", "second", "ignored"):
        assert (await asked(model)).status == 404
    assert (await asked("third")).status == 200


async def test_names_and_default_ports_are_one_worker_too(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), health={"interval_seconds": 60})
    same = [
        ["http://LOCALHOST:9", "http://localhost:9/", "http://Localhost:9/v1"],
        ["http://[::1]:9", "http://[::1]:9/v1/"],
        ["http://127.0.0.2", "http://127.0.0.2:80/", "HTTP://127.0.0.2/v1"],
    ]
    known = len(running.seats)
    for spellings in same:
        statuses = [(await admin(running, "", {"url": url})).status for url in spellings]
        assert statuses == [201, *[200] * (len(spellings) - 1)]
        known += 1
        assert len(running.seats) == known


async def test_nothing_speaks_of_a_worker_that_left(stage: Stage) -> None:
    workers = [await stage.worker(models=("m", f"own-{at}")) for at in range(3)]
    running = await stage.gateway(*workers)
    for at in range(30):
        await ask(running.port, CHAT.request(f"You know all of subject {at}. " * 20, "Hi"))
    leaving = workers[1]
    assert leaving.requests
    await remove(running, leaving.id)
    house = running.house
    assert leaving.id not in house.fleet.seats
    assert leaving.id not in {seat.id for seats in house.fleet._cache.values() for seat in seats}
    assert leaving.id not in set(homes(running))
    assert leaving.id not in {seat.id for seat in house._pools}
    assert leaving.id not in {worker for worker, _ in house._routed}
    assert "own-1" not in house.fleet.models()
    assert leaving.id not in "".join(await running.metrics())
    tables = [(await ask(running.port, get_admin(path))).body.decode() for path in ("workers", "config")]
    assert leaving.id not in tables[0]
    for at in range(30):
        explained = await ask(
            running.port, post(CHAT.body(f"You know all of subject {at}. " * 20, "Hi"), "/admin/explain")
        )
        assert leaving.id not in explained.body.decode()
    await eventually(lambda: not [each for each in running.connections() if each.pool.address.netloc == leaving.id])


def get_admin(path: str) -> bytes:
    return f"GET /admin/{path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()


async def test_a_worker_that_comes_back_is_cold(stage: Stage) -> None:
    """What its former life held is not expected of it."""
    workers = [await stage.worker() for _ in range(2)]
    running = await stage.gateway(*workers)
    request = CHAT.request("You know all of it. " * 50, "Hi")
    home = (await ask(running.port, request)).one("x-router-worker")
    leaving = next(worker for worker in workers if worker.id == home)
    await remove(running, leaving.id)
    await add(running, leaving)
    explained = await ask(running.port, post(CHAT.body("You know all of it. " * 50, "Hi"), "/admin/explain"))
    assert [row["expected_cached_tokens"] for row in explained.json()["candidates"]] == [0, 0]
