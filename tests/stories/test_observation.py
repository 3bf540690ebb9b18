"""What the metrics and the access log say of all this, and what they never say."""

import json
import re
from pathlib import Path
from typing import Any

from router.types import worker_from_url
from tests.support.client import CHAT, STREAM, get, post
from tests.support.deployment import METRICS
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, event, reply, stream

SECRET = "the prompt that nobody may read"
USAGE = {"prompt_tokens": 70, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 64}}
SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})?$")


def of(metric: str, **labels: str) -> str:
    """A sample's name as a scrape has it."""
    shown = ",".join(f'{name}="{labels[name]}"' for name in sorted(labels))
    return f"prefix_router_{metric}{{{shown}}}"


def labels_of(samples: dict[str, float]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for sample in samples:
        match = SAMPLE.match(sample)
        assert match, sample
        found.setdefault(match[1], set()).update(re.findall(r'(\w+)="', match[2] or ""))
    return found


async def test_every_metric_of_the_contract_is_there_with_its_labels(stage: Stage) -> None:
    busy = await stage.worker(answer=reply(b"{}", 503))
    worker = await stage.worker(answer=stream(event("1"), event("2", usage=USAGE), DONE))
    running = await stage.gateway(
        {"url": busy.url, "id": "a"}, {"url": worker.url, "id": "b", "max_in_flight": 1},
        routing={"policy": "tests.support.in_order", "shadow": "random"}, queue={"max": 1, "wait_seconds": 0.1},
    )  # fmt: skip
    assert (await ask(running.port, post(STREAM))).status == 200
    assert (await ask(running.port, post(b"{"))).status == 400
    client = await stage.client(running)
    worker.answer = reply(stop=-1, ending="hang")
    await client.send(post())
    await eventually(lambda: worker.running == 1)
    assert (await ask(running.port, post())).status == 503  # the held answer of the one that is not full
    client.drop()
    await eventually(lambda: len(running.finished) == 4)
    samples = await running.metrics()
    found = labels_of(samples)
    # Nothing moved or was predicted, and nobody else is heard, so there are no such series yet.
    unseen = {"spills_total", "cached_prediction_ratio", "kv_events_total", "kv_matches_total", "shared_total",
              "resumed_total"}  # fmt: skip
    for name, labels in METRICS.items():
        if name.removeprefix("prefix_router_") not in unseen:
            assert found.get(name) == labels - (set() if name.endswith("_bucket") else {"le"}), name
    assert of("request_seconds_bucket", path=CHAT, model="m", le="600.0") in samples
    assert samples[of("requests_total", path=CHAT, model="m", code="200")] == 1
    assert samples[of("requests_total", path=CHAT, model="m", code="499")] == 1
    assert samples[of("prompt_tokens_total", model="m")] == 70
    assert samples[of("cached_tokens_total", model="m", worker="b")] == 64
    assert samples[of("retries_total", kind="status_503")] >= 1
    assert samples[of("rejected_total", code="invalid_json")] == 1
    states = [value for name, value in samples.items() if "worker_state" in name and 'worker="b"' in name]
    assert (samples[of("worker_state", worker="b", state="ready")], sum(states)) == (1, 1)
    assert samples[of("first_token_seconds_count", model="m")] == 1


async def test_first_tokens_are_in_time_or_not_by_what_is_promised(stage: Stage) -> None:
    """A slow worker breaks the promise; the allowance for what must be computed keeps it for a long prompt."""
    quick, slow = stream(event("1"), DONE), stream(event("1"), DONE, delay=0.5)
    worker = await stage.worker(answer=quick)
    running = await stage.gateway(worker, routing={"slo": {"first_token_ms": 250, "per_uncached_token_ms": 1}})

    async def counts() -> tuple[float, float]:
        samples = await running.metrics()
        met, missed = (of("slo_requests_total", model="m", met=each) for each in ("true", "false"))
        return samples.get(met, 0), samples.get(missed, 0)

    await ask(running.port, post(STREAM))
    assert await counts() == (1, 0)
    worker.answer = slow
    await ask(running.port, post(STREAM))
    assert await counts() == (1, 1)
    long = json.dumps({"model": "m", "stream": True, "prompt": "text " * 4000}).encode()
    await ask(running.port, post(long, "/v1/completions"))
    assert await counts() == (2, 1)
    await ask(running.port, post(long, "/v1/completions"))
    assert await counts() == (2, 2), "now it holds the prompt, and nothing is allowed for computing it"
    worker.answer = reply(delay=0.5)
    await ask(running.port, post())
    assert await counts() == (2, 2), "an answer that is no stream has no first token"


async def test_a_worker_that_reports_no_usage_is_counted_as_such(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(answer=stream(event("1"), DONE)))
    await ask(running.port, post(STREAM))
    samples = await running.metrics()
    assert samples[of("usage_unreported_total", model="m")] == 1
    assert samples[of("prompt_tokens_total", model="m")] > 0
    assert not any(value for name, value in samples.items() if name.startswith("prefix_router_cached_tokens_total"))


USAGES = {
    "one byte at a time": [bytes((byte,)) for byte in event("x", usage=USAGE) + DONE],
    "cut between the two newlines": [event("x", usage=USAGE)[:-1], b"\n" + DONE],
    "carriage returns": [event("x", usage=USAGE).replace(b"\n", b"\r\n"), b"data: [DONE]\r\n\r\n"],
    "no space behind the colon": [event("x", usage=USAGE).replace(b"data: ", b"data:"), DONE],
    "behind a very long line": [b"data: " + b"y" * 2_000_000 + b"\n\n", event("x", usage=USAGE), DONE],
}


async def test_usage_is_counted_once_however_the_stream_is_cut(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    for count, (name, pieces) in enumerate(USAGES.items(), 1):
        worker.answer = stream(event("0"), *pieces)
        answer = await ask(running.port, post(STREAM))
        assert answer.body == event("0") + b"".join(pieces), name
        samples = await running.metrics()
        assert samples[of("prompt_tokens_total", model="m")] == 70 * count, name
        assert samples[of("cached_tokens_total", model="m", worker=worker.id)] == 64 * count, name


async def series(running: Running) -> int:
    return len(await running.metrics())


async def test_the_number_of_series_does_not_grow_with_what_clients_send(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    client = await stage.client(running)

    async def odd(at: int) -> None:
        await client.ask(post(b'{"model": "model-%d", "messages": []}' % at))
        await client.ask(post(path=f"/v1/path-{at}"))
        await client.ask(post(path=f"{CHAT}?at={at}"))
        await client.ask(get(f"/odd-{at}"))

    for at in range(5):
        await odd(at)
        await running.metrics()
    before = await series(running)
    for at in range(5, 300):
        await odd(at)
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "PROPFIND", "MKCOL", "SEARCH"):
        other = await stage.client(running)
        await other.send(post(path="/v1/x").replace(b"POST", method.encode(), 1))
        await other.head()
        await other.close()
    after = await series(running)
    assert after - before <= 4  # a status or two that was not seen before
    text = "".join(await running.metrics())
    assert "model-7" not in text
    assert "path-7" not in text
    assert 'code="404"' in text


async def test_a_worker_that_serves_any_model_does_not_make_series_of_their_names(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(models=()))
    client = await stage.client(running)
    for at in range(50):
        assert (await client.ask(post(b'{"model": "model-%d"}' % at))).status == 200
    samples = await running.metrics()
    assert samples[of("requests_total", path=CHAT, model="other", code="200")] == 50
    assert "model-" not in "".join(samples)


async def test_series_of_removed_workers_go(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), health={"interval_seconds": 30})
    before = await series(running)
    gone = await stage.worker(answer=reply(b"{}", 500))
    for at in range(30):
        running.gateway.roster.add(worker_from_url(gone.url, id=f"gone-{at}", models=("gone",)))
        running.gateway.apply()
        await eventually(lambda at=at: running.seats[f"gone-{at}"].health.state.value == "ready")
        await ask(running.port, post(b'{"model": "gone"}'))
        assert f'worker="gone-{at}"' in "".join(await running.metrics())
        running.gateway.roster.remove(f"gone-{at}")
        running.gateway.apply()
    samples = await running.metrics()
    assert 'worker="gone' not in "".join(samples)
    per_model = [name for name in samples if 'model="gone"' in name or 'model="other"' in name]
    assert len(samples) - len(per_model) - before < 12


async def test_the_wrong_method_and_the_unknown_path_are_counted_under_their_pattern(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    await ask(running.port, get(CHAT))
    await ask(running.port, get("/nowhere"))
    await ask(running.port, get("/v1/models"))
    samples = await running.metrics()
    assert samples[of("requests_total", path=CHAT, model="other", code="405")] == 1
    assert samples[of("requests_total", path="other", model="other", code="404")] == 1
    assert samples[of("requests_total", path="/v1/models", model="other", code="200")] == 1
    assert samples[of("rejected_total", code="method_not_allowed")] == 1
    assert samples[of("rejected_total", code="unknown_path")] == 1


async def test_probes_and_scrapes_are_no_requests(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    for path in ("/healthz", "/readyz", "/metrics", "/admin/workers"):
        await ask(running.port, get(path))
    samples = await running.metrics()
    assert not any(value for name, value in samples.items() if name.startswith("prefix_router_requests_total"))


# The access log.


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


async def test_a_line_a_request_in_json_and_nothing_secret(stage: Stage, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    worker = await stage.worker(answer=stream(event("an answer", usage=USAGE), DONE))
    running = await stage.gateway(
        {"url": worker.url, "api_key": "w0rker"}, log={"access": str(log)},
        auth={"api_keys": [{"tenant": "red", "key": "r3d-key"}]},
    )  # fmt: skip
    stage.headers = [("x-api-key", "r3d-key")]
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": SECRET}]}).encode()
    headers = [("X-Request-Id", "mine-1"), ("Authorization", "Bearer r3d-key"), ("Cookie", "session_id=abc")]
    first = await ask(running.port, post(body, headers=headers))
    await ask(running.port, post(b'{"broken', headers=headers[:1]))
    await ask(running.port, post(body, headers=headers[1:]))
    await eventually(lambda: len(lines(log)) == 3)
    text = log.read_text()
    for secret in (SECRET, "nobody may read", "r3d-key", "w0rker", "session_id", "an answer"):
        assert secret not in text
    served, refused, third = lines(log)
    assert {
        "request_id": "mine-1", "path": CHAT, "model": "m", "status": 200, "tenant": "red", "stream": True,
        "worker": worker.id, "tries": 1, "prompt_tokens": 70, "output_tokens": 3, "cached_tokens": 64,
    }.items() <= served.items()  # fmt: skip
    assert served["reason"] == first.one("x-router-reason")
    assert 0 <= served["first_byte_seconds"] <= served["first_token_seconds"] <= served["seconds"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", served["time"])
    assert (refused["status"], refused["code"]) == (401, "invalid_api_key")
    assert third["request_id"] != "mine-1"
    assert "hashes" not in served


async def test_hostile_values_stay_on_their_line(stage: Stage, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    running = await stage.gateway(await stage.worker(models=()), log={"access": str(log)})
    names = ['quote" \\ slash', "new\nline", "\x1b[31mred", "x" * 5000, "\ud800", "\u2028"]
    for name in names:
        body = json.dumps({"model": name, "messages": []}).encode()
        assert (await ask(running.port, post(body))).status == 200
    await eventually(lambda: len(log.read_bytes().splitlines()) == len(names))
    read = [json.loads(line) for line in log.read_bytes().splitlines()]
    assert [row["status"] for row in read] == [200] * len(names)
    assert max(len(row["model"]) for row in read) <= 200
    assert all(byte >= 0x20 or byte == 0x0A for byte in log.read_bytes())


async def test_hashes_are_logged_only_when_asked_for(stage: Stage, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    running = await stage.gateway(await stage.worker(), log={"access": str(log), "hashes": True})
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": SECRET * 20}]}).encode()
    await ask(running.port, post(body))
    await eventually(lambda: log.read_bytes().count(b"\n") == 1)
    [row] = lines(log)
    assert row["hashes"]
    assert SECRET not in log.read_text()


async def test_a_log_that_cannot_be_written_stops_nobody(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), log={"access": "/dev/full"})
    for _ in range(3):
        assert (await ask(running.port, post())).status == 200
