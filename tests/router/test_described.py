"""What `/openapi.json` says beyond the routes' signatures."""

import json

import httpx
import pytest

from router.described import REQUEST_BODY, WORKER_BODY
from tests.router.conftest import Connect
from tests.support.gateway import Stage


@pytest.fixture
async def http(stage: Stage, connect: Connect) -> httpx.AsyncClient:
    return connect(await stage.gateway(await stage.worker()))


def test_a_worker_s_body_is_described_whole_and_without_references() -> None:
    schema = WORKER_BODY["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["url"]
    assert {"url", "id", "weight", "tls", "kv_events", "max_in_flight"} <= set(schema["properties"])
    assert "$ref" not in json.dumps(WORKER_BODY)


def test_any_body_that_a_client_may_send_may_be_explained() -> None:
    assert "type" not in REQUEST_BODY["requestBody"]["content"]["application/json"]["schema"]


async def test_every_route_says_how_it_refuses_and_none_promises_fastapis_own_form(http: httpx.AsyncClient) -> None:
    described = (await http.get("/openapi.json")).json()
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            assert "4XX" in route["responses"], (method, path)
            assert "422" not in route["responses"], (method, path)


async def test_a_wrong_method_is_told_all_that_a_path_takes(http: httpx.AsyncClient) -> None:
    answer = await http.request("PUT", "/admin/workers")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, POST"
    assert (await http.request("DELETE", "/healthz")).headers["allow"] == "GET, HEAD"
