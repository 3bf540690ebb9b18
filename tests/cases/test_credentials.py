"""67, 68: whose key goes where, and what a caller's id may be."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import HELLO, STREAM, get, post
from tests.support.gateway import Stage, ask, eventually
from tests.support.worker import DONE, Answer, event, reply, stream

KEYS: dict[str, Any] = {"auth": {"api_keys": ["r0uter-key"]}}
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/rerank",
         "/v1/score", "/tokenize", "/detokenize")  # fmt: skip
BODY = b'{"model": "m", "input": "x", "messages": []}'
WAYS = {
    "Authorization": [("Authorization", "Bearer r0uter-key")],
    "authorization in capitals": [("AUTHORIZATION", "BEARER r0uter-key")],
    "x-api-key": [("x-api-key", "r0uter-key")],
    "api-key": [("api-key", "r0uter-key")],
    "all at once": [("Authorization", "Bearer r0uter-key"), ("x-api-key", "r0uter-key"), ("api-key", "r0uter-key")],
    "twice": [("Authorization", "Bearer r0uter-key"), ("Authorization", "Bearer another")],
}
SECRETS = {"none": None, "an empty one": "", "its own": "w0rker-key"}


@pytest.mark.parametrize("own", SECRETS)
async def test_the_gateways_key_never_reaches_a_worker(stage: Stage, own: str) -> None:
    """Whether the worker has a key, none, or an empty one; on every path, streaming or not."""
    worker = await stage.worker(answer=stream(event("1"), DONE), key=SECRETS[own] or None)
    running = await stage.gateway({"url": worker.url, "api_key": SECRETS[own]}, **KEYS)
    stage.headers = WAYS["x-api-key"]
    for name, headers in WAYS.items():
        for path in PATHS:
            for body in (BODY, BODY.replace(b"}", b', "stream": true}')):
                assert (await ask(running.port, post(body, path, headers))).status == 200, name
    for seen in worker.requests:
        assert not any(b"r0uter-key" in value for _, value in seen.headers)
        assert seen.all("authorization") == ([b"Bearer w0rker-key"] if own == "its own" else [])
        assert seen.all("x-api-key") == seen.all("api-key") == []


@pytest.mark.parametrize("path", PATHS)
async def test_a_cookie_or_a_query_is_no_place_for_a_key(stage: Stage, path: str) -> None:
    """They end in logs. Neither lets in, and the worker hears nothing of them."""
    worker = await stage.worker()
    running = await stage.gateway(worker, **KEYS)
    stage.headers = WAYS["x-api-key"]
    for query in ("?api_key=r0uter-key", "?key=r0uter-key", "?access_token=r0uter-key"):
        assert (await ask(running.port, post(BODY, path + query))).status == 401
    for cookie in ("api_key=r0uter-key", "session_id=r0uter-key", "Authorization=Bearer r0uter-key"):
        assert (await ask(running.port, post(BODY, path, [("Cookie", cookie)]))).status == 401
    assert worker.requests == []


@pytest.mark.parametrize("path", PATHS)
async def test_without_keys_here_the_callers_pass_unchanged_on_every_path(stage: Stage, path: str) -> None:
    """To be told by one route only would be as bad as by none."""
    worker = await stage.worker()
    running = await stage.gateway(worker)
    for body in (BODY, BODY.replace(b"}", b', "stream": true}')):
        headers = [("Authorization", "Bearer theirs  and odd=="), ("X-Api-Key", "k"), ("Api-Key", "l"),
                   ("Anthropic-Version", "2023-06-01"), ("OpenAI-Organization", "o")]  # fmt: skip
        assert (await ask(running.port, post(body, path, headers))).status == 200
        seen = worker.requests[-1]
        assert seen.one("authorization") == b"Bearer theirs  and odd=="
        assert (seen.one("x-api-key"), seen.one("api-key")) == (b"k", b"l")
        assert (seen.one("anthropic-version"), seen.one("openai-organization")) == (b"2023-06-01", b"o")


@pytest.mark.parametrize("settings", [{}, KEYS], ids=["open", "keys"])
async def test_the_same_holds_for_a_second_worker_that_is_tried(stage: Stage, settings: dict[str, Any]) -> None:
    """The first is busy and has a key of its own; the second has none and must not be given it."""
    first = await stage.worker(answer=reply(b"{}", 503))
    second = await stage.worker()
    running = await stage.gateway(
        {"url": first.url, "id": "w0", "api_key": "f1rst"}, {"url": second.url, "id": "w1"},
        routing={"policy": "tests.support.in_order"}, **settings,
    )  # fmt: skip
    stage.headers = WAYS["Authorization"]
    assert (await ask(running.port, post(headers=WAYS["Authorization"]))).status == 200
    assert first.requests[0].all("authorization") == [b"Bearer f1rst"]
    assert second.requests[0].all("authorization") == ([] if settings else [b"Bearer r0uter-key"])


async def test_a_worker_that_tells_its_key_tells_it_to_nobody(stage: Stage) -> None:
    """It echoes the headers it got, and redirects: the credentials stay here, and the redirect is not followed."""
    told = (("content-type", "application/json"), ("Authorization", "Bearer w0rker-key"), ("X-Api-Key", "w0rker-key"),
            ("Location", "http://elsewhere.example/v1/chat/completions"))  # fmt: skip
    worker = await stage.worker(key="w0rker-key")
    running = await stage.gateway({"url": worker.url, "api_key": "w0rker-key"})
    for status in (200, 301, 302, 307, 308, 400, 500):
        worker.answer = Answer(status=status, headers=told)
        got = await ask(running.port, post())
        assert got.status == status
        assert got.one("location") == "http://elsewhere.example/v1/chat/completions"
        assert got.all("authorization") == got.all("x-api-key") == []
    assert len(worker.requests) == 7


# 68: ids, and what is written down.


IDS = {
    "100 KB": "a" * 60_000,
    "tabs": "a\tb",
    "a terminal escape": b"a\x9b31mred",
    "not Latin": "id\u00e9\u4e16".encode(),
    "a line's end, escaped": "a%0d%0aSet-Cookie: x=1",
    "quotes": 'a"b',
    "a path": "../../etc/passwd",
    "empty": "",
}


async def test_an_id_is_short_and_safe_or_a_new_one_everywhere(stage: Stage, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    worker = await stage.worker(answer=lambda seen: reply(b"{}", 400 if b"bad" in seen.body else 200))
    running = await stage.gateway(worker, log={"access": str(log)})
    ids = []
    for body in (HELLO, STREAM, b'{"model": "m", "prompt": "bad"}', b"no json"):
        for name, given in IDS.items():
            got = await ask(running.port, post(body, headers=[("X-Request-Id", given)]))
            own = got.one("x-request-id")
            assert own, name
            assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", own), name
            assert own != given, name
            assert running.finished[-1].request_id == own
            if body != b"no json":
                assert worker.requests[-1].one("x-request-id") == own.encode()
            ids.append(own)
    await eventually(lambda: log.read_bytes().count(b"\n") == len(ids))
    assert [json.loads(line)["request_id"] for line in log.read_bytes().splitlines()] == ids
    assert len(set(ids)) == len(ids)
    assert all(byte >= 0x20 or byte == 0x0A for byte in log.read_bytes())


async def test_an_id_sent_twice_is_one(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    for pair in (("one", "two"), ("one", "bad\tone"), ("bad\tone", "one")):
        got = await ask(running.port, post(headers=[("X-Request-Id", each) for each in pair]))
        own = got.one("x-request-id")
        assert worker.requests[-1].one("x-request-id") == (own or "").encode()


async def test_secrets_stand_nowhere(stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Prompts, callers' keys, a worker's key and the credentials in its address: no log, metric or page has them."""
    caplog.set_level(0)
    log = tmp_path / "access.log"
    secret = "the prompt that nobody may read"
    keyed, second = await stage.worker(), await stage.worker(answer=reply(b"{}", 500))
    running = await stage.gateway(
        f"http://user:p4ss@{keyed.id}/", {"url": second.url, "api_key": "w0rker-key"},
        log={"access": str(log), "level": "debug"}, admin_token="adm1n", **KEYS,
    )  # fmt: skip
    stage.headers = WAYS["x-api-key"]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": secret}]}).encode()
    for at in range(6):
        await ask(running.port, post(body.replace(b"read", b"read%d" % at), headers=WAYS["Authorization"]))
        await ask(running.port, post(b'{"broken": "' + secret.encode(), headers=WAYS["Authorization"]))
        await ask(running.port, post(body, headers=[("Authorization", "Bearer wr0ng-key")]))
    await keyed.refuse()
    await ask(running.port, post(body, headers=WAYS["Authorization"]))
    shown = [log.read_text(), caplog.text, "".join(await running.metrics())]
    paths = ("/admin/workers", "/admin/config", "/admin/decisions", "/")
    shown += [(await ask(running.port, get(path, "Authorization: Bearer adm1n"))).body.decode() for path in paths]
    await eventually(lambda: log.read_bytes().count(b"\n") >= 19)
    shown.append(log.read_text())
    for hidden in (secret, "nobody may", "r0uter-key", "w0rker-key", "p4ss", "wr0ng-key", "adm1n"):
        for at, text in enumerate(shown):
            assert hidden not in text, (hidden, at)
