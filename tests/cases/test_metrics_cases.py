"""70, 72: what a scrape holds is bounded by what is configured, and never goes backwards."""

import json

import pytest

from router.types import worker_from_url
from tests.support.client import CHAT, get, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, Answer, event, reply, stream

PATHS = (CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/rerank", "/v1/score",
         "/tokenize", "/detokenize")  # fmt: skip
METHODS = [b"GET", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"HEAD", b"TRACE", b"PROPFIND", b"MKCOL", b"SEARCH",
           b"LOCK", b"COPY", b"MOVE", b"REPORT", b"PURGE", b"NOTIFY", b"MERGE", b"LINK"]  # fmt: skip
MADE_UP = [b"X%d" % at for at in range(32)] + [b"post", b"get", b"POSTS"]
NAMES = ["model-{at}", "model\\n{at}", "{at}\u0000", "\ud800-{at}", "m" * 300 + "{at}", '","path="{at}', "{{{at}}}"]


def labels(samples: dict[str, float]) -> set[str]:
    return set(samples)


async def anything(running: Running, at: int) -> None:
    """One of everything that a client can make up."""
    name = NAMES[at % len(NAMES)].replace("{at}", str(at))
    path = PATHS[at % len(PATHS)]
    body = json.dumps({"model": name, "messages": [], "input": "x", "stream": at % 2 == 0}).encode()
    requests = [
        post(body, path), post(body, f"{path}?model={name.encode('unicode_escape').decode().replace(' ', '')}"),
        post(body, f"/v1/path-{at}"), post(body, f"{path}/{at}"), get(f"/odd/{at}/.env"), get(f"/admin/workers/{at}"),
        post(b"{", path), post(body, path, [("X-Request-Id", f"id-{at}"), ("X-Session-Id", f"s-{at}")]),
    ]  # fmt: skip
    for request in requests:
        await ask(running.port, request)


@pytest.mark.parametrize("models", [("m",), ()], ids=["a model list", "serves any"])
async def test_nothing_a_client_makes_up_makes_a_series(stage: Stage, models: tuple[str, ...]) -> None:
    running = await stage.gateway(await stage.worker(models=models))
    for at in range(2 * len(PATHS) * len(NAMES) // 3):
        await anything(running, at)
    before = labels(await running.metrics())
    for at in range(100, 300):
        await anything(running, at)
    after = labels(await running.metrics())
    assert after == before
    text = "".join(after)
    for made_up in ("model-", "path-", "odd", ".env", "id-", "s-1", "model=\\"):
        assert made_up not in text, made_up


async def test_no_method_makes_a_series_of_its_own(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    for method in METHODS:
        for path in (CHAT, "/v1/models", "/nowhere"):
            client = await stage.client(running)
            await client.send(post(b"{}", path).replace(b"POST", method, 1))
            await client.head()
            await client.close()
    before = labels(await running.metrics())
    for method in MADE_UP + METHODS:
        client = await stage.client(running)
        await client.send(post(b"{}", CHAT).replace(b"POST", method, 1))
        got = await client.head()
        assert got.status in (400, 405), method
        await client.close()
    after = labels(await running.metrics())
    assert len(after - before) <= 2, "a request and a refusal that were no HTTP, at most"
    assert not any("PROPFIND" in name or "X3" in name for name in after)


async def test_an_unknown_path_is_no_success(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    for _ in range(5):
        assert (await ask(running.port, post(path="/nowhere"))).status == 404
    samples = await running.metrics()
    counted = {name: value for name, value in samples.items() if name.startswith("prefix_router_requests_total")}
    assert counted == {'prefix_router_requests_total{code="404",model="other",path="other"}': 5}


async def test_two_hundred_workers_that_came_and_went_leave_nothing(stage: Stage) -> None:
    """Each served, failed, was busy or was cut before it went; each had series of its own while it was there."""
    here = await stage.worker()
    running = await stage.gateway(here, health={"interval_seconds": 30})
    answers = [reply(), reply(b"{}", 500), stream(event("1"), DONE), stream(event("1"), stop=1, ending="reset"),
               Answer(raw=b"nonsense\r\n\r\n", keep_alive=False)]  # fmt: skip
    passing = await stage.worker()

    async def come_and_go(at: int) -> None:
        passing.answer = answers[at % len(answers)]
        name = f"passing-{at}"
        running.gateway.roster.add(worker_from_url(passing.url, id=name, models=("passing",)))
        running.gateway.apply()
        await eventually(lambda: running.seats[name].health.state.value == "ready")
        await ask(running.port, post(b'{"model": "passing", "stream": true, "messages": []}'))
        if at % 20 == 0:
            assert f'worker="{name}"' in "".join(await running.metrics())
        running.gateway.roster.remove(name)
        running.gateway.apply()

    await ask(running.port, post())
    for at in range(20):
        await come_and_go(at)
    before = labels(await running.metrics())
    for at in range(20, 220):
        await come_and_go(at)
    after = labels(await running.metrics())
    assert after == before
    assert "passing-" not in "".join(after)


async def test_counters_never_go_back_and_gauges_come_home(stage: Stage) -> None:
    """Over good and bad answers, reconfigured workers and clients that leave. Several processes: tests/e2e."""
    worker = await stage.worker(answer=lambda seen: answers[len(seen.body) % len(answers)])
    answers = [reply(), reply(b"{}", 500), reply(b"{}", 503), stream(event("1"), DONE), reply(delay=0.05)]
    running = await stage.gateway(worker, health={"unhealthy_after": 1000})
    seen: dict[str, float] = {}
    for at in range(60):
        body = b'{"model": "m", "prompt": "%s"}' % (b"x" * at)
        if at % 7 == 0:
            client = await stage.client(running)
            await client.send(post(body, "/v1/completions"))
            client.drop()
        else:
            await ask(running.port, post(body, "/v1/completions"))
        if at % 4 == 0:
            samples = await running.metrics()
            for name, value in seen.items():
                assert samples[name] >= value, name
            seen = {name: value for name, value in samples.items()
                    if name.partition("{")[0].endswith(("_total", "_count", "_bucket"))}  # fmt: skip
    await stage.at_rest(running)
    samples = await running.metrics()
    assert samples[f'prefix_router_in_flight{{worker="{worker.id}"}}'] == 0
    assert samples[f'prefix_router_outstanding_tokens{{worker="{worker.id}"}}'] == 0
    assert samples["prefix_router_queued"] == 0
