"""77: however a worker's address is written, a path reaches it once, with its query and its escapes."""

import json

import pytest

from tests.support.client import CHAT, get, post
from tests.support.gateway import Stage, ask
from tests.support.worker import DONE, event, stream

BASES = {"": "", "/": "", "//": "", "/v1": "", "/v1/": "", "/base": "/base", "/base/": "/base", "/base//": "/base",
         "/base/v1": "/base", "/base/v1/": "/base", "/a/b": "/a/b", "/a%20b": "/a%20b", "/a%2Fb/v1": "/a%2Fb",
         "/v1beta": "/v1beta", "/apiv1": "/apiv1"}  # fmt: skip
PATHS = (CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/rerank", "/v1/score",
         "/tokenize", "/detokenize")  # fmt: skip
BODY = b'{"model": "m", "input": "text", "messages": []}'
QUERIES = ("", "?", "?a=1", "?a=%2F&b=1+2&c", "?x=%20&y=%C3%BC&y=2", "?q=a?b", "?a=b%26c%3Dd", "?=", "?a=//b/../c",
           "?t=%00", "?" + "x" * 4000)  # fmt: skip


@pytest.mark.parametrize("base", BASES)
async def test_every_form_of_an_address_reaches_the_same_path(stage: Stage, base: str) -> None:
    """Requests and probes alike, on every path, streaming or not."""
    worker = await stage.worker(answer=stream(event("1"), DONE))
    running = await stage.gateway(worker.url + base)
    assert list(running.seats) == [worker.id]
    for path in PATHS:
        for body in (BODY, b'{"model": "m", "stream": true, "messages": []}'):
            assert (await ask(running.port, post(body, path))).status == 200
            assert worker.requests[-1].target == (BASES[base] + path).encode()
    assert {probe.target for probe in worker.probes} <= {
        f"{BASES[base]}/health".encode(), f"{BASES[base]}/v1/models".encode()
    }  # fmt: skip
    assert worker.probes


async def test_queries_pass_as_they_are(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker.url + "/base/")
    for query in QUERIES:
        assert (await ask(running.port, post(path=CHAT + query))).status == 200, query
        target = worker.requests[-1].target
        assert target in (f"/base{CHAT}{query}".encode(), f"/base{CHAT}{query}".encode().rstrip(b"?")), query
        assert {told.path for told in running.finished} == {CHAT}, "no query reaches a metric"


ODD = ("/V1/chat/completions", "/v1//chat/completions", "//v1/chat/completions", "/v1/chat/completions/",
       "/v1/chat/completions//", "/v1/chat/completions/x", "/v1/./chat/completions", "/v1/chat/../chat/completions",
       "/v1/chat/completions%20", "/v1/chat/completions%00", "/v1/chat/completions;a=1",
       "/v1/v1/chat/completions", "/v1/ch\u00e4t", "/llm/v1/chat/completions", "/v1/%C3%BC", "/%2e%2e/admin/workers",
       "/v1/chat/%ZZ")  # fmt: skip


async def test_what_is_not_quite_a_path_reaches_no_worker(stage: Stage) -> None:
    """Nothing is folded, unescaped or guessed: a path that means something else to a worker is unknown here."""
    worker = await stage.worker()
    running = await stage.gateway(worker)
    for path in ODD:
        got = await ask(running.port, post(path=path))
        assert got.status in (400, 404), path
        assert worker.requests == [], path
    samples = "".join(await running.metrics())
    assert "chat/completions/" not in samples
    assert "llm" not in samples


@pytest.mark.parametrize("path", ["/v1/%63hat/completions", "/v1/chat%2fcompletions", "/v1/chat%2Fcompletions"])
async def test_an_escaped_path_is_sent_as_it_was_written_or_not_at_all(stage: Stage, path: str) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    got = await ask(running.port, post(path=f"{path}?a=%62"))
    assert got.status in (200, 404)
    assert [seen.target for seen in worker.requests] == ([f"{path}?a=%62".encode()] if got.status == 200 else [])
    assert {told.path for told in running.finished} <= {CHAT, "other"}


async def test_a_proxy_in_front_takes_its_prefix_off(stage: Stage) -> None:
    """Mounted under /llm: the proxy that has the prefix sends the path without it; with it the path is unknown."""
    worker = await stage.worker()
    running = await stage.gateway(worker)
    headers = [("X-Forwarded-Prefix", "/llm"), ("X-Forwarded-Host", "example.org"), ("X-Script-Name", "/llm")]
    assert (await ask(running.port, post(headers=headers))).status == 200
    assert worker.requests[0].target == CHAT.encode()
    got = await ask(running.port, post(path="/llm" + CHAT, headers=headers))
    assert (got.status, got.code) == (404, "unknown_path")
    assert len(worker.requests) == 1


async def test_two_spellings_are_one_worker_and_two_bases_are_refused_or_two(stage: Stage) -> None:
    """The second spelling updates the first; nobody gets a double share."""
    worker = await stage.worker()
    running = await stage.gateway(worker)
    port = worker.port
    for url in (f"http://127.0.0.1:{port}/", f"HTTP://127.0.0.1:{port}/v1", f"http://127.0.0.1:{port}/v1/"):
        got = await ask(running.port, post(json.dumps({"url": url}).encode(), "/admin/workers"))
        assert got.status == 200, url
        assert list(running.seats) == [worker.id]
    listed = (await ask(running.port, get("/admin/workers"))).json()["workers"]
    assert len(listed) == 1
