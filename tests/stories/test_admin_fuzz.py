"""The admin routes take anything: they answer with a status of theirs, in their own form, and stay as they were."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.gateway import Running, Stage

EXAMPLES = 12
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    ["url", "id", "api_key", "weight", "models", "labels", "tls", "kv_events", "max_in_flight", "dialect"]
)
urls = st.sampled_from(
    ["http://w:1", "https://u:p@w/base/v1", "http://[::1]:9", "file:///etc/passwd", "gopher://w", "http://", ""]
)
workers = st.dictionaries(names, values | urls, max_size=5) | st.fixed_dictionaries({"url": urls}) | values
bodies = workers.map(lambda value: json.dumps(value).encode("utf-8", "replace")) | st.binary(max_size=40)
segments = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12).map(
    lambda text: quote(text, safe="")
)


def routes_of(described: dict[str, Any]) -> list[tuple[str, str]]:
    """Every admin route that is described but the one that reads files."""
    return [
        (method.upper(), path)
        for path, methods in described["paths"].items()
        for method in methods
        if path.startswith("/admin") and path != "/admin/reload"
    ]


def _ask_anything(http: httpx.Client, route: tuple[str, str], seen: set[int]) -> None:
    method, path = route

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(segments, bodies, st.dictionaries(segments, segments, max_size=2))
    def ask(segment: str, body: bytes, query: dict[str, str]) -> None:
        asked = path.replace("{worker_id}", segment) + "?" + "&".join(f"{name}={query[name]}" for name in query)
        answer = http.request(method, asked, content=body if method == "POST" else None)
        seen.add(answer.status_code)
        assert answer.status_code < 500, (method, asked, body, answer.text)
        assert answer.headers["cache-control"] == "no-store"
        if answer.status_code != 204:
            told = answer.json()
            assert (answer.status_code >= 400) is ("error" in told), told
            if answer.status_code >= 400:
                assert set(told["error"]) == {"message", "type", "param", "code"}

    ask()


def fuzz(running: Running, headers: dict[str, str]) -> set[int]:
    """Runs in a thread of its own while the gateway runs in the loop."""
    seen: set[int] = set()
    with httpx.Client(
        base_url=f"http://127.0.0.1:{running.port}", headers=headers, timeout=30, trust_env=False
    ) as http:
        described = http.get("/openapi.json").json()
        routes = routes_of(described)
        assert len(routes) >= 9

        for route in routes:
            _ask_anything(http, route, seen)
    return seen


@pytest.mark.parametrize("token", [None, "t0ken"], ids=["loopback", "token"])
async def test_whatever_is_sent_to_the_admin_routes_is_answered(stage: Stage, token: str | None) -> None:
    given_settings: dict[str, Any] = {"admin_token": token} if token else {}
    running = await stage.gateway(await stage.worker(), **given_settings)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    seen = await asyncio.to_thread(fuzz, running, headers)
    assert 400 in seen
    assert 200 in seen
    for seat in list(running.seats):
        if seat not in {worker.id for worker in stage.workers}:
            running.gateway.roster.remove(seat)
    running.gateway.apply()


async def test_without_the_token_nothing_is_told_whatever_is_sent(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), admin_token="t0ken")
    before = set(running.seats)

    def story() -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{running.port}", timeout=30, trust_env=False) as http:
            routes = routes_of(http.get("/openapi.json").json())

            @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
            @given(st.sampled_from(routes), segments, bodies)
            def ask(route: tuple[str, str], segment: str, body: bytes) -> None:
                method, path = route
                answer = http.request(method, path.replace("{worker_id}", segment), content=body)
                assert answer.status_code == 403 or (answer.status_code == 404 and _is_another_path(segment))
                assert answer.status_code == 404 or answer.json()["error"]["code"] == "admin_only"

            ask()

    await asyncio.to_thread(story)
    assert set(running.seats) == before


def _is_another_path(segment: str) -> bool:
    return segment in (".", "..") or "%2F" in segment
