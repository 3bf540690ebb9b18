"""Where a request would go now, and why, without sending it."""

import json
from typing import Any

import httpx
import pytest

from router.errors import InvalidJson, InvalidRequest, ModelNotFound, NoReadyWorker
from router.explain import explain, guess_path
from router.types import Worker
from tests.router.conftest import Connect
from tests.support.client import CHAT
from tests.support.fleets import chat, down, ready, worker
from tests.support.gateway import Stage
from tests.support.stories import Desk

KEYS = {"chosen", "reason", "policy", "model", "key_depth", "home", "prompt_tokens", "candidates", "runner_up"}
CANDIDATE = {"worker", "state", "in_flight", "wait_tokens", "expected_cached_tokens", "cost"}
LONG = "a long beginning that several requests share, word for word. " * 100


def desk_of(*workers: Worker) -> Desk:
    desk = Desk(0)
    desk.house.reconcile(workers)
    ready(desk.fleet)
    return desk


def told(desk: Desk, body: bytes, path: str | None = None) -> dict[str, Any]:
    return explain(desk.house, body, path, [])


def test_the_answer_has_the_contracts_shape() -> None:
    said = told(Desk(), chat("hello"))
    assert set(said) >= KEYS
    assert all(set(each) == CANDIDATE for each in said["candidates"])
    assert {each["worker"] for each in said["candidates"]} == {"w0", "w1"}
    assert json.loads(json.dumps(said)) == said


def test_looking_changes_nothing() -> None:
    desk = Desk()
    first = told(desk, chat(LONG))
    assert [told(desk, chat(LONG)) for _ in range(5)] == [first] * 5
    assert desk.events == []
    assert desk.sent == []
    assert desk.at_rest()


def test_the_runner_up_is_the_next_that_is_not_chosen() -> None:
    said = told(Desk(), chat("hello"))
    assert (said["chosen"], said["runner_up"]) == ("w0", "w1")
    assert told(Desk(1), chat("hello"))["runner_up"] is None


def test_full_workers_are_shown_and_not_chosen() -> None:
    desk = desk_of(worker("w0", max_in_flight=1), worker("w1", max_in_flight=1))
    desk.ask()
    said = told(desk, chat("hello"))
    assert (said["chosen"], said["runner_up"]) == ("w1", "w0")
    assert [each["in_flight"] for each in said["candidates"]] == [1, 0]
    desk.ask()
    said = told(desk, chat("hello"))
    assert (said["chosen"], said["reason"]) == (None, None)
    assert len(said["candidates"]) == 2


def test_a_prompt_with_nothing_to_hash_has_no_home() -> None:
    assert told(Desk(), b'{"model": "m"}')["home"] is None
    assert told(Desk(), chat("hello"))["home"] in ("w0", "w1")


def test_the_refusals_are_those_of_the_request_itself() -> None:
    with pytest.raises(InvalidJson):
        told(Desk(), b"not json")
    with pytest.raises(NoReadyWorker):
        told(Desk(0), chat("hello"))
    with pytest.raises(ModelNotFound):
        told(desk_of(worker("a", models=("x",))), b'{"model": "y"}')
    with pytest.raises(InvalidRequest):
        told(desk_of(worker("a", models=("x", "y"))), b"{}")


def test_with_nobody_ready_nobody_is_chosen() -> None:
    desk = Desk(1)
    desk.seats[0].health.was_ready = False
    down(desk.fleet, desk.seats[0])
    said = told(desk, chat("hello"))
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
    assert told(Desk(), chat("hello"), "/nowhere") == told(Desk(), chat("hello"), CHAT)


@pytest.fixture
async def http(stage: Stage, connect: Connect) -> httpx.AsyncClient:
    workers = [await stage.worker() for _ in range(4)]
    return connect(await stage.gateway(*workers))


async def test_it_agrees_with_where_the_request_then_goes(http: httpx.AsyncClient) -> None:
    for at in range(12):
        body = {"model": "m", "messages": [{"role": "user", "content": f"{at % 6} {LONG}"}]}
        said = (await http.post("/admin/explain", json=body)).json()
        answer = await http.post(CHAT, json=body)
        assert (answer.headers["x-router-worker"], answer.headers["x-router-reason"]) == (
            said["chosen"],
            said["reason"],
        )
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


async def test_a_model_name_that_is_no_unicode_is_shown_all_the_same(stage: Stage, connect: Connect) -> None:
    http = connect(await stage.gateway(await stage.worker(models=())))
    answer = await http.post("/admin/explain", content=b'{"model": "\\ud800"}')
    assert (answer.status_code, answer.json()["model"]) == (200, "?")
