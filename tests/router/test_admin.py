"""The admin routes over a real gateway: who may ask, and what they do."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.router.conftest import Connect
from tests.support.gateway import Running, Stage, eventually
from tests.support.worker import Worker, event, stream

TOKEN = "a-token"
CHAT = "/v1/chat/completions"


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
async def worker(stage: Stage) -> Worker:
    return await stage.worker()


@pytest.fixture
async def running(stage: Stage, worker: Worker) -> Running:
    return await stage.gateway(worker)


@pytest.fixture
async def http(running: Running, connect: Connect) -> httpx.AsyncClient:
    return connect(running)


async def listed(http: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in (await http.get("/admin/workers")).json()["workers"]}


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


# Who may ask.


async def test_without_a_token_a_loopback_peer_may_ask(http: httpx.AsyncClient) -> None:
    assert (await http.get("/admin/workers")).status_code == 200


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Real-IP"])
async def test_without_a_token_one_who_speaks_for_another_may_not(http: httpx.AsyncClient, header: str) -> None:
    assert error(await http.get("/admin/workers", headers={header: "127.0.0.1"})) == (403, "admin_only")


ROUTES = [("GET", "/admin/workers"), ("POST", "/admin/workers"), ("DELETE", "/admin/workers/x"),
          ("POST", "/admin/workers/x/drain"), ("POST", "/admin/workers/x/undrain"), ("POST", "/admin/explain"),
          ("GET", "/admin/decisions"), ("GET", "/admin/config")]  # fmt: skip


@pytest.mark.parametrize(
    "shown", [{}, bearer("wrong"), {"authorization": "Bearer"}, {"authorization": TOKEN}, bearer("a-token ü")]
)
async def test_with_a_token_it_alone_counts(
    stage: Stage, worker: Worker, connect: Connect, shown: dict[str, str]
) -> None:
    http = connect(await stage.gateway(worker, admin_token=TOKEN))
    headers = [(name.encode(), value.encode()) for name, value in shown.items()]
    for method, path in ROUTES:
        answer = await http.request(method, path, headers=headers, json={"url": worker.url})
        assert error(answer) == (403, "admin_only"), (method, path)
    for more in ({}, {"x-forwarded-for": "10.0.0.1"}):
        assert (await http.get("/admin/workers", headers=bearer() | more)).status_code == 200


async def test_client_keys_open_nothing_here(stage: Stage, worker: Worker, connect: Connect) -> None:
    http = connect(await stage.gateway(worker, admin_token=TOKEN, auth={"api_keys": ["sk-one"]}))
    assert (await http.get("/admin/workers", headers=bearer("sk-one"))).status_code == 403
    assert (await http.get("/admin/workers", headers=bearer())).status_code == 200


# Workers.


async def test_a_worker_is_shown_with_its_state_and_load(http: httpx.AsyncClient, worker: Worker) -> None:
    row = (await listed(http))[worker.id]
    assert {"id": worker.id, "url": worker.url, "state": "ready", "models": ["m"], "in_flight": 0, "weight": 1.0,
            "outstanding_tokens": 0, "dialect": "auto"}.items() <= row.items()  # fmt: skip
    assert (await http.get("/admin/workers")).json()["panic"] is False


async def test_a_worker_that_is_added_joins_and_is_probed(
    stage: Stage, running: Running, http: httpx.AsyncClient
) -> None:
    fresh = await stage.worker(models=("n",))
    answer = await http.post("/admin/workers", json={"url": fresh.url, "labels": {"zone": "b"}, "max_in_flight": 4})
    assert answer.status_code == 201
    assert {"id": fresh.id, "labels": {"zone": "b"}, "max_in_flight": 4}.items() <= answer.json().items()
    await running.ready(2)
    assert (await http.post(CHAT, json={"model": "n"})).headers["x-router-worker"] == fresh.id


async def test_adding_one_that_is_there_updates_it(running: Running, http: httpx.AsyncClient, worker: Worker) -> None:
    for url in (worker.url, f"{worker.url}/v1/", f"HTTP://{worker.id}/"):
        answer = await http.post("/admin/workers", json={"url": url, "weight": 2})
        assert (answer.status_code, answer.json()["weight"]) == (200, 2)
    assert set(await listed(http)) == {worker.id}
    assert running.state(worker) == "ready", "it is the same worker still"


async def test_an_id_may_be_given_and_moved_to_another_address(
    stage: Stage, running: Running, http: httpx.AsyncClient
) -> None:
    one, other = await stage.worker(models=("n",)), await stage.worker(models=("n",))
    assert (await http.post("/admin/workers", json={"url": one.url, "id": "mine"})).status_code == 201
    await running.ready(2)
    assert (await http.post("/admin/workers", json={"url": other.url, "id": "mine"})).status_code == 200
    await running.ready(2)
    assert (await http.post(CHAT, json={"model": "n"})).headers["x-router-worker"] == "mine"
    assert (len(one.requests), len(other.requests)) == (0, 1)


async def test_every_fault_of_an_addition_is_told(http: httpx.AsyncClient) -> None:
    answer = await http.post("/admin/workers", json={"url": "ftp://x", "weight": -1, "colour": "red"})
    assert error(answer) == (400, "invalid_request")
    message = answer.json()["error"]["message"]
    assert "url: expected a URL that begins with http:// or https://" in message
    assert "weight:" in message
    assert "colour: there is no such setting" in message


@pytest.mark.parametrize("body", [{}, {"url": ""}, {"url": "w:1"}, {"url": "http://w:0"}, {"url": 5},
                                  {"url": "http://w:1", "id": "a b"}, {"url": "http://w:1?x=1"},
                                  {"url": "http://w:1", "api_key": "k\n"}])  # fmt: skip
async def test_a_bad_addition_is_400_and_adds_nothing(
    http: httpx.AsyncClient, worker: Worker, body: dict[str, Any]
) -> None:
    assert error(await http.post("/admin/workers", json=body)) == (400, "invalid_request")
    assert set(await listed(http)) == {worker.id}


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"not json", "invalid_json"), (b"[]", "invalid_request"), (b"", "invalid_json"), (b"5", "invalid_request")],
)
async def test_an_addition_that_is_no_object_is_400(http: httpx.AsyncClient, body: bytes, code: str) -> None:
    answer = await http.post("/admin/workers", content=body, headers={"content-type": "application/json"})
    assert error(answer) == (400, code)


async def test_secrets_of_a_worker_are_never_shown(stage: Stage, http: httpx.AsyncClient) -> None:
    fresh = await stage.worker()
    answer = await http.post("/admin/workers", json={"url": f"http://me:hush@{fresh.id}", "api_key": "sk-hush"})
    assert answer.status_code == 201
    assert "hush" not in answer.text + (await http.get("/admin/workers")).text


async def test_a_worker_that_is_removed_is_gone_and_stays_gone(
    running: Running, http: httpx.AsyncClient, worker: Worker
) -> None:
    answer = await http.delete(f"/admin/workers/{worker.id}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert error(await http.delete(f"/admin/workers/{worker.id}")) == (404, "unknown_worker")
    assert await listed(http) == {}
    assert (await http.get("/readyz")).status_code == 503
    assert f'worker="{worker.id}"' not in (await http.get("/metrics")).text
    assert not [task for task in running.own_tasks() if task.get_name() == f"probe {worker.id}"]


@pytest.mark.parametrize("action", ["drain", "undrain"])
async def test_what_is_asked_of_an_unknown_worker_is_404(http: httpx.AsyncClient, action: str) -> None:
    assert error(await http.post(f"/admin/workers/never/{action}")) == (404, "unknown_worker")


async def test_a_drained_worker_gets_no_new_requests_until_it_is_undrained(
    http: httpx.AsyncClient, worker: Worker
) -> None:
    answer = await http.post(f"/admin/workers/{worker.id}/drain")
    assert (answer.status_code, answer.json()["state"]) == (200, "draining")
    assert error(await http.post(CHAT, json={"model": "m"})) == (503, "no_ready_worker")
    answer = await http.post(f"/admin/workers/{worker.id}/undrain")
    assert (answer.status_code, answer.json()["state"]) == (200, "ready")
    assert (await http.post(CHAT, json={"model": "m"})).status_code == 200


async def test_a_drained_workers_running_requests_finish(
    running: Running, http: httpx.AsyncClient, worker: Worker
) -> None:
    gate = asyncio.Event()
    worker.answer = stream(event("a"), gate, event("b"))
    async with http.stream("POST", CHAT, json={"model": "m", "stream": True}) as answer:
        pieces = answer.aiter_raw()
        await anext(pieces)
        assert (await http.post(f"/admin/workers/{worker.id}/drain")).json()["in_flight"] == 1
        gate.set()
        assert b'"b"' in b"".join([piece async for piece in pieces])
    await eventually(lambda: running.seat(worker).load.in_flight == 0)


async def test_updates_leave_exactly_one_prober_a_worker(
    running: Running, http: httpx.AsyncClient, worker: Worker
) -> None:
    name = f"probe {worker.id}"
    for weight in range(1, 6):
        await http.post("/admin/workers", json={"url": worker.url, "weight": weight})
    await eventually(lambda: [task.get_name() for task in running.own_tasks()].count(name) == 1)
    await http.delete(f"/admin/workers/{worker.id}")
    await http.post("/admin/workers", json={"url": worker.url})
    await eventually(lambda: [task.get_name() for task in running.own_tasks()].count(name) == 1)


# What is shown.


async def test_decisions_are_told_newest_first_and_without_prompt_text(http: httpx.AsyncClient, worker: Worker) -> None:
    for name in ("first", "second"):
        body = {"model": "m", "messages": [{"role": "user", "content": "my darkest secret " * 50}]}
        await http.post(CHAT, json=body, headers={"x-request-id": name})
    answer = await http.get("/admin/decisions")
    rows = answer.json()["decisions"]
    assert [row["request_id"] for row in rows] == ["second", "first"]
    assert {row["worker"] for row in rows} == {worker.id}
    assert {row["status"] for row in rows} == {200}
    assert "darkest" not in answer.text


async def test_odd_and_long_model_names_leave_the_decisions_readable(stage: Stage, connect: Connect) -> None:
    worker = await stage.worker(models=())
    http = connect(await stage.gateway(worker))
    for body in (b'{"model": "\\ud800"}', b'{"model": "%s"}' % (b"x" * 100_000)):
        assert (await http.post(CHAT, content=body)).status_code == 200
    answer = await http.get("/admin/decisions")
    assert answer.status_code == 200
    assert len(answer.json()["decisions"]) == 2
    assert len(answer.content) < 2000


async def test_the_config_is_shown_with_its_origins_and_secrets_masked(
    stage: Stage, worker: Worker, connect: Connect
) -> None:
    given = {"url": f"http://me:hush@{worker.id}", "api_key": "sk-hush"}
    running = await stage.gateway(given, ready=False, admin_token=TOKEN, auth={"api_keys": ["hush-1"]})
    answer = await connect(running).get("/admin/config", headers=bearer())
    rows = {row["path"]: row for row in answer.json()["settings"]}
    assert rows["admin_token"]["value"] == "********"
    assert rows["workers[0].api_key"]["value"] == "********"
    assert rows["auth.api_keys[0].key"]["value"] == "********"
    assert rows["routing.policy"] == {"path": "routing.policy", "value": "prefix_cost", "origin": "default"}
    assert rows["log.access"]["origin"] == "test"
    assert "hush" not in answer.text
    assert TOKEN not in answer.text
