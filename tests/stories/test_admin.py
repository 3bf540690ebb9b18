"""The fleet changed and asked about at run time."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.client import CHAT, STREAM, Response, get, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, event, reply, stream

SYSTEM = "You are the assistant of a large shop. " * 80


def chat(user: str, **fields: Any) -> bytes:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


async def admin(running: Running, method: str, path: str, body: Any = None, *headers: tuple[str, str]) -> Response:
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return await ask(running.port, post(data, f"/admin{path}", headers).replace(b"POST", method.encode(), 1))


async def rows(running: Running) -> dict[str, Any]:
    return {row["id"]: row for row in (await admin(running, "GET", "/workers")).json()["workers"]}


async def test_the_list_says_how_each_worker_does(stage: Stage) -> None:
    worker = await stage.worker(models=("b", "a"), answer=stream(event("1"), stop=1, ending="hang"))
    running = await stage.gateway({"url": worker.url, "weight": 2, "labels": {"rack": "7"}, "max_in_flight": 3})
    client = await stage.client(running)
    await client.send(post(b'{"model": "a", "stream": true, "prompt": "%s"}' % (b"text " * 100), "/v1/completions"))
    await client.head()
    row = (await rows(running))[worker.id]
    for name, value in {
        "url": worker.url, "state": "ready", "models": ["a", "b"], "in_flight": 1, "weight": 2.0, "dialect": "auto",
        "max_in_flight": 3, "labels": {"rack": "7"},
    }.items():  # fmt: skip
        assert row[name] == value, name
    assert row["outstanding_tokens"] >= 0
    client.drop()


async def test_a_worker_is_added_probed_and_used(stage: Stage) -> None:
    running = await stage.gateway()
    worker = await stage.worker()
    added = await admin(running, "POST", "/workers", {"url": worker.url})
    assert (added.status, added.json()["id"]) == (201, worker.id)
    await running.ready()
    assert (await ask(running.port, post())).one("x-router-worker") == worker.id


async def test_every_spelling_of_a_url_is_one_worker(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    for url in (f"{worker.url}/", f"{worker.url}/v1", f"HTTP://{worker.id}/v1/"):
        updated = await admin(running, "POST", "/workers", {"url": url, "models": ["other"]})
        assert (updated.status, updated.json()["models"]) == (200, ["other"])
    assert list(await rows(running)) == [worker.id]
    assert (await ask(running.port, post())).status == 404  # its old model is its own no more
    assert (await ask(running.port, post(b'{"model": "other"}'))).status == 200


async def test_an_update_keeps_what_is_in_flight(stage: Stage) -> None:
    worker = await stage.worker(answer=stream(event("1"), stop=1, ending="hang"))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(STREAM))
    await client.head()
    await admin(running, "POST", "/workers", {"url": worker.url, "weight": 3})
    row = (await rows(running))[worker.id]
    assert (row["in_flight"], row["weight"]) == (1, 3.0)
    client.drop()
    await eventually(lambda: worker.aborted == 1)


async def test_a_removed_workers_stream_finishes(stage: Stage) -> None:
    gate = asyncio.Event()
    worker = await stage.worker(answer=stream(event("1"), gate, event("2"), DONE))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(post(STREAM))
    answer = await client.head()
    await client.piece(answer)
    removed = await admin(running, "DELETE", f"/workers/{worker.id}")
    assert (removed.status, removed.body) == (204, b"")
    assert await rows(running) == {}
    assert (await ask(running.port, post())).status == 503
    gate.set()
    await client.rest(answer)
    assert answer.whole
    assert answer.body.endswith(event("2") + DONE)
    await eventually(lambda: worker.finished == 1)
    seen = len(worker.probes)
    await asyncio.sleep(0.5)
    assert len(worker.probes) == seen


async def test_removing_and_adding_again_is_as_before(stage: Stage) -> None:
    workers = [await stage.worker() for _ in range(4)]
    running = await stage.gateway(*workers)
    before = [(await explain(running, chat(str(at) * 200)))["home"] for at in range(20)]
    await admin(running, "DELETE", f"/workers/{workers[0].id}")
    assert (await admin(running, "POST", "/workers", {"url": workers[0].url})).status == 201
    await running.ready()
    assert [(await explain(running, chat(str(at) * 200)))["home"] for at in range(20)] == before


@pytest.mark.parametrize("worker_id", ["nobody", "127.0.0.1:1", "%20", "[::1]:80"])
async def test_an_unknown_id_is_a_404(stage: Stage, worker_id: str) -> None:
    running = await stage.gateway(await stage.worker())
    for method, path in (("DELETE", ""), ("POST", "/drain"), ("POST", "/undrain")):
        answer = await admin(running, method, f"/workers/{worker_id}{path}")
        assert (answer.status, answer.code) == (404, "unknown_worker")


BAD = {
    "no scheme": {"url": "gpu-1:8000"},
    "another scheme": {"url": "ftp://gpu-1"},
    "no host": {"url": "http://"},
    "a query": {"url": "http://gpu-1?a=b"},
    "a port too large": {"url": "http://gpu-1:99999"},
    "no url": {},
    "an unknown field": {"url": "http://gpu-1", "wieght": 2},
    "a weight of zero": {"url": "http://gpu-1", "weight": 0},
    "a list": [1],
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_worker_is_a_400_and_changes_nothing(stage: Stage, name: str) -> None:
    running = await stage.gateway(await stage.worker())
    answer = await admin(running, "POST", "/workers", BAD[name])
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert len(await rows(running)) == 1


async def test_a_worker_that_is_no_json_is_a_400_too(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    for body in (b"{", b""):
        answer = await admin(running, "POST", "/workers", body)
        assert answer.status == 400
        assert answer.code in ("invalid_json", "invalid_request")


async def test_draining_lets_running_requests_finish_and_takes_no_new_ones(stage: Stage) -> None:
    gate = asyncio.Event()
    first, second = await stage.worker(answer=lambda _: stream(event("1"), gate, DONE)), await stage.worker()
    routing = {"policy": "tests.support.in_order"}
    running = await stage.gateway({"url": first.url, "id": "a"}, {"url": second.url, "id": "b"}, routing=routing)
    client = await stage.client(running)
    await client.send(post(STREAM))
    answer = await client.head()
    drained = await admin(running, "POST", "/workers/a/drain")
    assert (drained.status, drained.json()["state"], drained.json()["in_flight"]) == (200, "draining", 1)
    assert (await ask(running.port, post())).one("x-router-worker") == "b"
    gate.set()
    assert (await client.rest(answer)).whole
    back = await admin(running, "POST", "/workers/a/undrain")
    assert (back.status, back.json()["state"]) == (200, "ready")
    assert (await ask(running.port, post())).one("x-router-worker") == "a"


async def test_when_all_drain_the_gateway_is_not_ready(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    await admin(running, "POST", f"/workers/{worker.id}/drain")
    assert (await ask(running.port, get("/readyz"))).status == 503
    assert (await ask(running.port, post())).code == "no_ready_worker"
    await asyncio.sleep(0.5)
    assert running.state(worker) == "draining"  # a good probe does not undo it


# Why a request goes where it goes.


async def explain(running: Running, body: bytes, path: str = "", *headers: tuple[str, str]) -> dict[str, Any]:
    answer = await admin(running, "POST", f"/explain{path}", body, *headers)
    assert answer.status == 200, answer.body
    return answer.json()


async def test_an_explanation_has_its_shape(stage: Stage) -> None:
    workers = [await stage.worker() for _ in range(3)]
    running = await stage.gateway(*workers)
    said = await explain(running, chat("hello"))
    assert {
        "chosen",
        "reason",
        "policy",
        "model",
        "key_depth",
        "home",
        "prompt_tokens",
        "candidates",
        "runner_up",
    } <= set(said)
    assert (said["policy"], said["model"]) == ("prefix_cost", "m")
    assert said["key_depth"] > 0
    assert said["prompt_tokens"] > len(SYSTEM) / 8
    ids = [candidate["worker"] for candidate in said["candidates"]]
    assert sorted(ids) == sorted(worker.id for worker in workers)
    assert said["chosen"] in ids
    assert said["runner_up"] in set(ids) - {said["chosen"]}
    for candidate in said["candidates"]:
        assert {"worker", "state", "in_flight", "wait_tokens", "expected_cached_tokens", "cost"} <= set(candidate)


@pytest.mark.parametrize("policy", ["prefix_cost", "prefix_bounded", "prefix_aware", "least_work", "least_outstanding"])
async def test_an_explanation_agrees_with_where_the_request_then_goes(stage: Stage, policy: str) -> None:
    running = await stage.gateway(*[await stage.worker() for _ in range(4)], routing={"policy": policy})
    for at in range(12):
        body = chat(f"question {at % 4} " * 50)
        said = await explain(running, body)
        sent = await ask(running.port, post(body))
        assert (sent.one("x-router-worker"), sent.one("x-router-reason")) == (said["chosen"], said["reason"])


@pytest.mark.parametrize("salt", [True, False])
@pytest.mark.parametrize("shown", [True, False])
async def test_it_agrees_for_a_callers_key_too(stage: Stage, salt: bool, shown: bool) -> None:
    """The tenant is part of a prefix's key unless that is turned off; where there is only one it need not be shown."""
    keys = [{"tenant": "red", "key": "r3d"}, *([{"tenant": "blue", "key": "blu3"}] if shown else [])]
    running = await stage.gateway(
        *[await stage.worker() for _ in range(8)], auth={"api_keys": keys, "tenant_salt": salt}
    )
    stage.headers = [("x-api-key", "r3d")]
    for at in range(6):
        body = chat(f"{at} " * 200)
        said = await explain(running, body, "", *(stage.headers if shown else ()))
        sent = await ask(running.port, post(body, headers=[("Authorization", "Bearer r3d")]))
        assert sent.one("x-router-worker") == said["chosen"]


async def test_it_agrees_for_a_session_and_for_another_path(stage: Stage) -> None:
    running = await stage.gateway(*[await stage.worker() for _ in range(8)], routing={"policy": "session"})
    for at in range(8):
        header = ("X-Session-Id", f"session {at}")
        said = await explain(running, chat("same"), f"?path={CHAT}", header)
        sent = await ask(running.port, post(chat("same"), headers=[header]))
        assert (sent.one("x-router-worker"), sent.one("x-router-reason")) == (said["chosen"], "session")


async def test_explaining_sends_and_changes_nothing(stage: Stage) -> None:
    workers = [await stage.worker() for _ in range(3)]
    running = await stage.gateway(*workers)
    first = await explain(running, chat("hello"))
    for _ in range(30):
        assert await explain(running, chat("hello")) == first
    assert sum(len(worker.requests) for worker in workers) == 0
    assert (await admin(running, "GET", "/decisions")).json() == {"decisions": []}


async def test_what_would_be_refused_is_refused_here_too(stage: Stage) -> None:
    one, two = await stage.worker(models=("a",)), await stage.worker(models=("b",))
    running = await stage.gateway(one, two)
    for body, status, code in (
        (b"{", 400, "invalid_json"), (b'{"model": "c"}', 404, "model_not_found"), (b"{}", 400, "invalid_request"),
    ):  # fmt: skip
        answer = await admin(running, "POST", "/explain", body)
        assert (answer.status, answer.code) == (status, code)


async def test_decisions_are_listed_without_any_prompt_text(stage: Stage) -> None:
    running = await stage.gateway(*[await stage.worker() for _ in range(2)])
    sent = await ask(running.port, post(chat("a very secret question")))
    listed = await admin(running, "GET", "/decisions")
    assert b"secret" not in listed.body
    assert b"shop" not in listed.body
    [row] = listed.json()["decisions"]
    assert row["request_id"] == sent.one("x-request-id")
    assert (row["worker"], row["reason"]) == (sent.one("x-router-worker"), sent.one("x-router-reason"))
    assert (row["status"], row["model"]) == (200, "m")
    assert row["age_seconds"] >= 0


async def test_decisions_are_bounded_and_the_newest_stand_first(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    client = await stage.client(running)
    ids = [(await client.ask()).one("x-request-id") for _ in range(300)]
    listed = (await admin(running, "GET", "/decisions")).json()["decisions"]
    assert len(listed) < 300
    assert [row["request_id"] for row in listed] == ids[::-1][: len(listed)]


async def test_the_settings_are_shown_with_their_secrets_masked(stage: Stage) -> None:
    worker = await stage.worker(key="w0rker")
    running = await stage.gateway(
        {"url": worker.url, "api_key": "w0rker"}, admin_token="t0ken", auth={"api_keys": ["s3cret"]},
        timeouts={"connect_seconds": 0.3},
    )  # fmt: skip
    stage.headers = [("x-api-key", "s3cret")]
    answer = await admin(running, "GET", "/config", None, ("Authorization", "Bearer t0ken"))
    for secret in (b"w0rker", b"t0ken", b"s3cret"):
        assert secret not in answer.body
    shown = {row["path"]: row for row in answer.json()["settings"]}
    assert str(shown["timeouts.connect_seconds"]["value"]) == "0.3"
    assert shown["timeouts.connect_seconds"]["origin"] == "test"
    assert shown["queue.max"]["origin"] == "default"


async def test_the_api_is_documented(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    paths = (await ask(running.port, get("/openapi.json"))).json()["paths"]
    assert {"/admin/workers", "/admin/explain", "/admin/decisions", "/admin/config", "/healthz", "/readyz"} <= set(
        paths
    )
    assert (await ask(running.port, get("/docs"))).status == 200
    page = await ask(running.port, get("/"))
    assert (page.status, (page.one("content-type") or "").partition(";")[0]) == (200, "text/html")


async def test_a_refusal_of_a_worker_shows_in_the_fleet(stage: Stage) -> None:
    worker = await stage.worker(answer=reply(b"{}", 500))
    running = await stage.gateway(worker)
    await ask(running.port, post())
    assert (await rows(running))[worker.id]["state"] == "suspect"


async def test_a_url_that_is_a_worker_already_gets_no_second_id(stage: Stage) -> None:
    """Its load would be counted twice over, each time as if there were no other."""
    worker = await stage.worker()
    running = await stage.gateway({"url": worker.url, "id": "a"})
    answer = await ask(
        running.port, post(json.dumps({"url": worker.url + "/v1", "id": "b"}).encode(), "/admin/workers")
    )
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert b"is the worker a" in answer.body
    assert set(running.seats) == {"a"}
