"""Everything but the proxied paths: health, metrics, the model list, the 404s, over a real gateway."""

import json

import httpx
import pytest

from tests.router.conftest import Connect
from tests.support.client import Client, get
from tests.support.gateway import Running, Stage, eventually

OPEN = ("/healthz", "/readyz", "/ping", "/metrics")
KEYED = {"auth": {"api_keys": [{"tenant": "one", "key": "sk-one"}]}}


@pytest.fixture
async def running(stage: Stage) -> Running:
    return await stage.gateway(await stage.worker())


@pytest.fixture
async def http(running: Running, connect: Connect) -> httpx.AsyncClient:
    return connect(running)


@pytest.fixture
async def alone(stage: Stage, connect: Connect) -> httpx.AsyncClient:
    """A gateway without any worker."""
    return connect(await stage.gateway())


def error(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"].startswith("application/json")
    told = answer.json()["error"]
    assert set(told) == {"message", "type", "param", "code"}
    return answer.status_code, told["code"]


@pytest.mark.parametrize("count", [0, 1])
async def test_alive_is_ok_with_and_without_workers(stage: Stage, connect: Connect, count: int) -> None:
    running = await stage.gateway(*[await stage.worker() for _ in range(count)])
    answer = await connect(running).get("/healthz")
    assert (answer.status_code, answer.text) == (200, "ok\n")


async def test_ready_is_200_with_a_ready_worker(http: httpx.AsyncClient) -> None:
    answer = await http.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"ready": True, "workers_ready": 1, "draining": False}
    assert (await http.get("/ping")).status_code == 200


async def test_ready_is_503_without_one(alone: httpx.AsyncClient) -> None:
    answer = await alone.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "workers_ready": 0, "draining": False}
    ping = await alone.get("/ping")
    assert (ping.status_code, ping.content) == (503, b"")


async def test_ready_is_503_while_draining_and_alive_is_not(running: Running, http: httpx.AsyncClient) -> None:
    running.house.draining = True
    assert (await http.get("/readyz")).status_code == 503
    assert (await http.get("/ping")).status_code == 503
    assert (await http.get("/healthz")).status_code == 200


async def test_ready_follows_the_probes(stage: Stage, connect: Connect) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, health={"interval_seconds": 0.05})
    await worker.refuse()
    await eventually(lambda: running.state(worker) == "down")
    assert (await connect(running).get("/readyz")).status_code == 503


async def test_models_have_the_workers_own_fields(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/models")
    assert answer.json() == {"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": 4096}]}


async def test_metrics_are_prometheus_text(http: httpx.AsyncClient) -> None:
    answer = await http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "prefix_router_build_info{version=" in answer.text


async def test_the_page_is_html(http: httpx.AsyncClient) -> None:
    answer = await http.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("path", ["/nothing", "/v1", "/v1/chat", "/admin/nothing", "/v1/chat/completions/x"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_is_not_there_is_404_in_json(http: httpx.AsyncClient, method: str, path: str) -> None:
    assert error(await http.request(method, path)) == (404, "unknown_path")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/embeddings", "POST"),
        ("POST", "/v1/models", "GET"),
        ("POST", "/metrics", "GET"),
        ("PUT", "/admin/workers", None),
    ],
)
async def test_a_wrong_method_is_405_and_says_which_is_right(
    http: httpx.AsyncClient, method: str, path: str, allowed: str | None
) -> None:
    answer = await http.request(method, path)
    assert error(answer) == (405, "method_not_allowed")
    if allowed is not None:
        assert allowed in answer.headers["allow"]
        assert allowed in answer.json()["error"]["message"]


async def test_a_path_may_be_added_and_is_proxied(stage: Stage, connect: Connect) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, routing={"pass_through": ["/v1/audio/speech"]})
    answer = await connect(running).post("/v1/audio/speech?x=1", json={"model": "m", "input": "hi"})
    assert (answer.status_code, answer.headers["x-router-worker"]) == (200, worker.id)
    assert worker.requests[0].target == b"/v1/audio/speech?x=1"


async def test_keys_are_asked_for_on_the_client_paths_and_the_model_list(stage: Stage, connect: Connect) -> None:
    http = connect(await stage.gateway(await stage.worker(), **KEYED))
    assert error(await http.get("/v1/models")) == (401, "invalid_api_key")
    assert error(await http.get("/v1/models", headers={"authorization": "Bearer sk-two"})) == (401, "invalid_api_key")
    for headers in ({"authorization": "Bearer sk-one"}, {"x-api-key": "sk-one"}):
        assert (await http.get("/v1/models", headers=headers)).status_code == 200
    assert error(await http.post("/v1/chat/completions", json={"model": "m"})) == (401, "invalid_api_key")


@pytest.mark.parametrize("path", OPEN)
async def test_health_and_metrics_ask_for_no_key(stage: Stage, connect: Connect, path: str) -> None:
    running = await stage.gateway(await stage.worker(), admin_token="t", **KEYED)
    assert (await connect(running).get(path)).status_code == 200


async def test_the_api_is_described(http: httpx.AsyncClient) -> None:
    described = (await http.get("/openapi.json")).json()
    assert described["info"]["title"] == "Prefix Router"
    assert {path: set(routes) for path, routes in described["paths"].items() if path.startswith("/admin")} == {
        "/admin/workers": {"get", "post"},
        "/admin/workers/{worker_id}": {"delete"},
        "/admin/workers/{worker_id}/drain": {"post"},
        "/admin/workers/{worker_id}/undrain": {"post"},
        "/admin/explain": {"post"},
        "/admin/decisions": {"get"},
        "/admin/config": {"get"},
        "/admin/processes": {"get"},
        "/admin/reload": {"post"},
    }
    docs = await http.get("/docs")
    assert docs.status_code == 200
    assert "openapi.json" in docs.text


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/ping", "/metrics", "/v1/models", "/", "/nothing", "/admin/workers", "/docs"]
)
async def test_every_answer_has_a_request_id(http: httpx.AsyncClient, path: str) -> None:
    first, second = await http.get(path), await http.get(path)
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert (await http.get(path, headers={"x-request-id": "my.own-id_1"})).headers["x-request-id"] == "my.own-id_1"
    assert (await http.get(path, headers={"x-request-id": "no good"})).headers["x-request-id"] != "no good"


async def test_proxied_paths_have_one_request_id_also_on_refusals(http: httpx.AsyncClient) -> None:
    for body in (b'{"model": "m"}', b"not json", b'{"model": "stranger"}'):
        answer = await http.post("/v1/chat/completions", content=body, headers={"x-request-id": "id-1"})
        assert answer.headers.get_list("x-request-id") == ["id-1"]


async def test_client_paths_that_are_answered_here_are_counted_and_others_as_other(
    running: Running, http: httpx.AsyncClient
) -> None:
    for path in ("/v1/models", "/ping", "/a", "/b", "/v1/chat/completions", "/healthz", "/metrics", "/"):
        await http.get(path)
    await http.post("/v1/models")
    shown = await running.metrics()

    def count(path: str, code: int) -> float | None:
        return shown.get(f'prefix_router_requests_total{{code="{code}",model="other",path="{path}"}}') or shown.get(
            f'prefix_router_requests_total{{path="{path}",model="other",code="{code}"}}'
        )

    assert (count("/v1/models", 200), count("/v1/models", 405), count("/ping", 200)) == (1, 1, 1)
    assert count("other", 404) == 2
    assert not any("/healthz" in name or "/metrics" in name for name in shown)


async def test_a_fault_of_the_gateways_own_is_a_500_in_json(
    running: Running, monkeypatch: pytest.MonkeyPatch, stage: Stage
) -> None:
    monkeypatch.setattr(running.gateway.catalogue, "listed", lambda: 1 / 0)
    client = await stage.client(running)
    answer = await client.ask(get("/v1/models", "x-request-id: mine"))
    assert (answer.status, answer.one("x-request-id")) == (500, "mine")
    assert json.loads(answer.body)["error"]["code"] == "internal_error"


async def test_heads_of_many_requests_share_one_connection(running: Running, stage: Stage) -> None:
    client: Client = await stage.client(running)
    for path in ("/healthz", "/nothing", "/v1/models", "/ping"):
        assert (await client.ask(get(path))).whole
