"""A model that is still being loaded."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from backends.contract import EngineNotReadyError, Job
from backends.face import Access, Face
from backends.loading import Loading
from backends.server import Server


@pytest.fixture
async def served() -> AsyncIterator[tuple[Loading, httpx.AsyncClient]]:
    """An engine that nothing was put into yet, and a client of the server before it."""
    loading = Loading(["mock-model"])
    server = Server(Face(loading, Access(), loading.loaded), "127.0.0.1", 0)
    await server.listen()
    async with httpx.AsyncClient(base_url=server.address, trust_env=False) as client:
        yield loading, client
    server.stop()
    loading.close()
    await asyncio.sleep(0)


PROMPT = {"prompt": "a"}
MESSAGES = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/health", None),
        ("GET", "/ping", None),
        ("GET", "/v1/models", None),
        ("POST", "/v1/chat/completions", MESSAGES),
        ("POST", "/v1/messages", MESSAGES),
        ("POST", "/v1/messages/count_tokens", MESSAGES),
        ("POST", "/invocations", PROMPT),
        ("POST", "/tokenize", PROMPT),
        ("POST", "/detokenize", {"tokens": [1]}),
    ],
)
async def test_until_the_model_is_there_it_is_not_ready_and_says_when_to_ask_again(
    served: Any, method: str, path: str, body: Any
) -> None:
    _, client = served
    answer = await client.request(method, path, json=body)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["error"]["message"] == "The model is not loaded yet."
    assert (await client.get("/metrics")).status_code == 200


async def test_once_it_is_there_everything_is_answered_by_it(served: Any, engine_of: Any) -> None:
    loading, client = served
    engine = engine_of()
    loading.put(engine)
    assert (await client.get("/health")).status_code == 200
    assert (await client.get("/v1/models")).json()["data"][0]["max_model_len"] == engine.max_model_len
    assert (await client.post("/tokenize", json=PROMPT)).json()["count"] == 1
    assert loading.has_logprobs
    assert repr(engine) in repr(loading)


def test_its_work_is_the_real_engines(engine_of: Any, listener: Any, fake_time: Any) -> None:
    loading, sink = Loading(["mock-model"]), listener()
    with pytest.raises(EngineNotReadyError):
        loading.start(Job(model="mock-model", prompt=[1]), sink)
    loading.put(engine_of())
    loading.start(Job(model="mock-model", prompt=[1], max_tokens=3), sink)
    assert loading.stats().running + loading.stats().waiting == 1
    fake_time.pass_to(60)
    assert sink.heard[-1] == "finished"


@pytest.mark.parametrize("late", [False, True])
def test_the_engine_is_closed_with_it_even_when_it_comes_after_the_end(
    engine_of: Any, listener: Any, late: bool
) -> None:
    loading, engine = Loading(["mock-model"]), engine_of()
    engine.start(Job(model="mock-model", prompt=[1]), listener())
    steps = [loading.close, lambda: loading.put(engine)]
    for step in steps if late else reversed(steps):
        step()
    assert engine.stats().running == engine.stats().waiting == 0
