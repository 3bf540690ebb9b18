"""Paths, keys and errors."""

import asyncio
import json
import logging
from typing import Any

import httpx
import pytest

from backends.contract import JobRefusedError
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


async def test_a_closed_face_takes_no_more_work_and_says_so(mock: Any) -> None:
    """What needs no engine is still answered."""
    worker = await mock()
    worker.worker.face.close()
    for answer in (await worker.http.get("/health"), await worker.chat()):
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["message"] == "The worker is shutting down."
    assert (await worker.http.get("/v1/models")).status_code == 200


async def test_of_several_jobs_all_start_or_none(mock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the engine says to one of them, refusal or failure, the ones before it are given back."""
    worker = await mock("--decode-tokens-per-second", "0.01")
    begin = worker.engine.start
    for error, status in ((JobRefusedError("Not this one."), 400), (RuntimeError("broken"), 500)):

        def start(job: Any, sink: Any, error: Exception = error) -> Any:
            if job.seed == 2:
                raise error
            return begin(job, sink)

        monkeypatch.setattr(worker.engine, "start", start)
        assert (await worker.chat(n=3, seed=0)).status_code == status
        stats = worker.engine.stats()
        assert (stats.running, stats.waiting, worker.ledger.started) == (0, 0, 0)


CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1000}
FORMS = {
    "/v1/chat/completions": {**CHAT, "n": 2},
    "/v1/completions": {"prompt": ["a", "b"], "max_tokens": 1000},
    "/v1/messages": CHAT,
    "/v1/embeddings": {"input": ["a", "b"]},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", FORMS)
async def test_an_engine_that_fails_is_a_500_or_a_stream_that_is_cut(
    mock: Any, monkeypatch: pytest.MonkeyPatch, path: str, stream: bool
) -> None:
    """In the API's own form, and all other sequences of the request end with it."""
    worker = await mock("--decode-tokens-per-second", "0.01", "--prefill-tokens-per-second", "0.01")
    begin = worker.engine.start

    def start(job: Any, sink: Any) -> Any:
        asyncio.get_running_loop().call_later(0.01, sink.failed)
        return begin(job, sink)

    monkeypatch.setattr(worker.engine, "start", start)
    body = {**FORMS[path], "stream": stream}
    if stream and path != "/v1/embeddings":
        with pytest.raises(httpx.RemoteProtocolError):
            await worker.ask(path, body)
    else:
        answer = await worker.ask(path, body)
        assert answer.status_code == 500
        assert answer.json()["error"]["message"] == "Internal error."
        assert ("code" in answer.json()["error"]) == (path != "/v1/messages")
    stats = worker.engine.stats()
    assert (stats.running, stats.waiting) == (0, 0)


FIELDS = (
    *(
        "temperature",
        "top_p",
        "seed",
        "n",
        "stop",
        "stop_sequences",
        "logprobs",
        "top_logprobs",
        "max_tokens",
        "prompt",
    ),
    *("max_completion_tokens", "stream", "stream_options", "ignore_eos", "cache_salt", "model", "tools", "system"),
)
ODD = (
    *(
        "null",
        "true",
        "0",
        "-1",
        "1.5",
        "1e400",
        "NaN",
        "1" + "0" * 400,
        '""',
        '"a"',
        '"\\ud800"',
        "[]",
        "[null]",
        "{}",
    ),
    *('["\\ud800"]', '["a", ""]', "18446744073709551616", "-9223372036854775808", '{"include_usage": "\\ud800"}'),
)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/embeddings"])
@pytest.mark.parametrize("field", FIELDS)
def test_no_value_of_any_field_is_our_fault(engine_of: Any, path: str, field: str) -> None:
    """It is taken, or it is the client's mistake."""
    answers: list[int] = []

    class Answer:
        def when_over(self, callback: Any) -> None: ...

        def whole(self, status: int, headers: Any, body: bytes) -> None:
            answers.append(status)

        def head(self, status: int, headers: Any) -> None:
            answers.append(status)

    face = Face(engine_of(), Access())
    for value in ODD:
        whole = json.dumps({**FORMS[path], "stream": False, field: "HERE"}).replace('"HERE"', value)
        face(Request("POST", path, "1.1", (), whole.encode(), keep_alive=True), Answer())  # type: ignore[arg-type]
    assert set(answers) <= {200, 400, 404}
