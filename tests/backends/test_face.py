"""Paths, keys and errors."""

import logging
from typing import Any

import pytest

from backends.face import Access, Face, Route, found_routes
from backends.http import Request


def test_every_path_of_the_contract_has_a_route() -> None:
    found = {(route.method, route.path) for route in found_routes()}
    posts = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages", "/tokenize", "/detokenize")
    assert {("POST", path) for path in (*posts, "/invocations")} <= found
    assert {("GET", path) for path in ("/v1/models", "/ping", "/health", "/metrics", "/stats")} <= found


async def test_unknown_paths_and_wrong_methods_are_json(mock: Any) -> None:
    worker = await mock()
    answer = await worker.http.get("/v1/nothing")
    assert answer.status_code == answer.json()["error"]["code"] == 404
    answer = await worker.http.get("/v1/chat/completions")
    assert answer.status_code == answer.json()["error"]["code"] == 405
    answer = await worker.http.head("/v1/chat/completions")
    assert answer.status_code == 405
    assert answer.content == b""


async def test_bad_json_is_a_400_whatever_it_is(mock: Any) -> None:
    worker = await mock()
    for body in (b"", b"{", b"\xff\xfe", b"[" * 100_000):
        answer = await worker.http.post("/v1/chat/completions", content=body)
        assert answer.status_code == 400
    assert (await worker.chat()).status_code == 200


@pytest.mark.parametrize(("everywhere", "health"), [(False, 200), (True, 401)])
async def test_the_key_guards_the_apis_and_all_paths_only_where_asked(mock: Any, everywhere: bool, health: int) -> None:
    worker = await mock("--api-key", "secret", *(["--api-key-everywhere"] if everywhere else []))
    right = {"authorization": "Bearer secret"}
    assert (await worker.http.get("/v1/models")).status_code == 401
    assert (await worker.http.get("/v1/models", headers={"authorization": "Bearer other"})).status_code == 401
    assert (await worker.http.get("/v1/models", headers={"authorization": "secret"})).status_code == 401
    assert (await worker.http.get("/v1/models", headers={"authorization": "bearer secret"})).status_code == 200
    assert (await worker.http.get("/v1/models", headers=right)).status_code == 200
    for path in ("/health", "/metrics"):
        assert (await worker.http.get(path)).status_code == health
        assert (await worker.http.get(path, headers=right)).status_code == 200


def test_without_a_key_everybody_is_let_in() -> None:
    class Asking:
        path = "/v1/models"

        def header(self, _: str) -> None: ...

    assert Access().allows(Asking())  # type: ignore[arg-type]


def test_a_handler_that_fails_is_a_500_and_no_text_of_the_prompt_is_logged(
    engine_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what and where, never the exception's own words: they may quote the prompt."""

    def fail(_: Any) -> None:
        raise KeyError("the prompt")

    said: list[int] = []

    class Answer:
        def whole(self, status: int, headers: Any, body: bytes) -> None:
            said.append(status)

    face = Face(engine_of(), Access(), extra=[Route("GET", "/fail", fail)])
    with caplog.at_level(logging.DEBUG):
        face(Request("GET", "/fail", "1.1", (), b"", keep_alive=True), Answer())  # type: ignore[arg-type]
    assert said == [500]
    assert "KeyError" in caplog.text
    assert "prompt" not in caplog.text
