"""Where a request would go now, and why, without sending it."""

import json
from typing import Any

import httpx
import pytest

from router.explain import explain, guess_path
from router.errors import InvalidJson, InvalidRequest, ModelNotFound, NoReadyWorker
from tests.router.conftest import Connect
from tests.support.client import CHAT
from tests.support.fleets import chat, down, worker
from tests.support.gateway import Stage
from tests.support.tale import Tale

KEYS = {"chosen", "reason", "policy", "model", "key_depth", "home", "prompt_tokens", "candidates", "runner_up"}
CANDIDATE = {"worker", "state", "in_flight", "wait_tokens", "expected_cached_tokens", "cost"}
LONG = "a long beginning that several requests share, word for word. " * 100


def told(tale: Tale, body: bytes, path: str | None = None) -> dict[str, Any]:
    return explain(tale.house, body, path, [])


def test_the_answer_has_the_contracts_shape() -> None:
    said = told(Tale(), chat("hello"))
    assert set(said) >= KEYS
    assert all(set(each) == CANDIDATE for each in said["candidates"])
    assert {each["worker"] for each in said["candidates"]} == {"a", "b", "c"}
    assert json.loads(json.dumps(said)) == said


def test_looking_changes_nothing() -> None:
    tale = Tale()
    first = told(tale, chat(LONG))
    assert [told(tale, chat(LONG)) for _ in range(5)] == [first] * 5
    assert tale.facts == []
    assert tale.lines == []
    assert tale.at_rest()


def test_the_runner_up_is_the_next_that_is_not_chosen() -> None:
    said = told(Tale(), chat("hello"))
    assert (said["chosen"], said["runner_up"]) == ("a", "b")
    assert told(Tale(["a"]), chat("hello"))["runner_up"] is None


def test_full_workers_are_shown_and_not_chosen() -> None:
    tale = Tale([worker("a", max_in_flight=1), worker("b", max_in_flight=1)])
    tale.ask()
    said = told(tale, chat("hello"))
    assert (said["chosen"], said["runner_up"]) == ("b", "a")
    assert [each["in_flight"] for each in said["candidates"]] == [1, 0]
    tale.ask()
    said = told(tale, chat("hello"))
    assert (said["chosen"], said["reason"]) == (None, None)
    assert len(said["candidates"]) == 2


def test_a_prompt_with_nothing_to_hash_has_no_home() -> None:
    assert told(Tale(), b'{"model": "m"}')["home"] is None
    assert told(Tale(), chat("hello"))["home"] in ("a", "b", "c")


def test_the_refusals_are_those_of_the_request_itself() -> None:
    with pytest.raises(InvalidJson):
        told(Tale(), b"not json")
    with pytest.raises(NoReadyWorker):
        told(Tale([]), chat("hello"))
    with pytest.raises(ModelNotFound):
        told(Tale([worker("a", models=("x",))]), b'{"model": "y"}')
    with pytest.raises(InvalidRequest):
        told(Tale([worker("a", models=("x", "y"))]), b"{}")


def test_with_nobody_ready_nobody_is_chosen() -> None:
    tale = Tale(["a"])
    tale.fleet.seats["a"].health.was_ready = False
    down(tale.fleet, tale.fleet.seats["a"])
    said = told(tale, chat("hello"))
    assert (said["chosen"], said["candidates"]) == (None, [])


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"messages": []}', CHAT),
        (b'{"prompt": "x"}', "/v1/completions"),
        (b'{"input": "x"}', "/v1/embeddings"),
        (b'{"messages": [], "prompt": ""}', CHAT),
        (b"{}", CHAT),
        (b"not json", CHAT),
        (b"[]", CHAT),
    ],
)
def test_the_path_is_guessed_from_the_fields(body: bytes, path: str) -> None:
    assert guess_path(body) == path


def test_an_unknown_path_is_read_as_a_chat() -> None:
    assert told(Tale(), chat("hello"), "/nowhere") == told(Tale(), chat("hello"), CHAT)


@pytest.fixture
async def http(stage: Stage, connect: Connect) -> httpx.AsyncClient:
    workers = [await stage.worker() for _ in range(4)]
    return connect(await stage.gateway(*workers))


async def test_it_agrees_with_where_the_request_then_goes(http: httpx.AsyncClient) -> None:
    for at in range(12):
        body = {"model": "m", "messages": [{"role": "user", "content": f"{at % 6} {LONG}"}]}
        said = (await http.post("/admin/explain", json=body)).json()
        answer = await http.post(CHAT, json=body)
        assert (answer.headers["x-router-worker"], answer.headers["x-router-reason"]) == (said["chosen"], said["reason"])
        assert answer.headers["x-router-policy"] == said["policy"]


async def test_what_was_sent_once_is_expected_in_the_cache(http: httpx.AsyncClient) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": LONG}]}
    first = (await http.post("/admin/explain", json=body)).json()
    assert {each["expected_cached_tokens"] for each in first["candidates"]} == {0}
    await http.post(CHAT, json=body)
    second = (await http.post("/admin/explain", json=body)).json()
    expected = {each["worker"]: each["expected_cached_tokens"] for each in second["candidates"]}
    assert second["chosen"] == first["chosen"]
    assert expected.pop(second["chosen"]) > 0.8 * second["prompt_tokens"]
    assert set(expected.values()) == {0}


async def test_its_refusals_have_the_requests_codes(http: httpx.AsyncClient) -> None:
    async def code(content: bytes) -> tuple[int, str]:
        answer = await http.post("/admin/explain", content=content)
        return answer.status_code, answer.json()["error"]["code"]

    assert await code(b"not json") == (400, "invalid_json")
    assert await code(b'{"model": "stranger"}') == (404, "model_not_found")


async def test_the_path_may_be_given(http: httpx.AsyncClient) -> None:
    body = {"model": "m", "prompt": LONG}
    said = [(await http.post("/admin/explain", json=body, params=params)).json()
            for params in ({}, {"path": "/v1/completions"}, {"path": CHAT})]  # fmt: skip
    assert said[0] == said[1]
    assert said[2]["prompt_tokens"] < said[0]["prompt_tokens"]
