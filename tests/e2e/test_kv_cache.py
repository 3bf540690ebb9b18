"""What workers say of their own caches and speeds, heard by a real gateway from real mock workers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.support.processes import Program, gateway, mock_workers, running, until

CHAT = "/v1/chat/completions"
QUICK = ("--prefill-tokens-per-second", "100000", "--decode-tokens-per-second", "2000")
CACHE = ("--cache-blocks", "256", "--block-tokens", "16")  # 4096 tokens


def chat(topic: str, words: int = 1200, **more: Any) -> dict[str, Any]:
    """About as many tokens as words."""
    messages = [{"role": "system", "content": f"{topic} is a wide field. " * (words // 5)}]
    messages += [{"role": "user", "content": "Tell me of it."}]
    return {"model": "mock-model", "messages": messages, "max_tokens": 2, **more}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def publishing(*flags: str) -> Iterator[tuple[Program, str]]:
    """A mock worker that publishes what its cache does, and where."""
    port = free_port()
    with running("backends", "mock", "--port", "0", "--kv-events", f"tcp://*:{port}", *flags) as worker:
        yield worker, f"tcp://127.0.0.1:{port}"


@contextmanager
def listening(*workers: tuple[Program, str]) -> Iterator[httpx.Client]:
    given = [{"url": worker.url, "kv_events": endpoint} for worker, endpoint in workers]
    with gateway([], workers=given) as front:
        with httpx.Client(base_url=front.url, timeout=60, trust_env=False) as client:
            yield client


def send(client: httpx.Client, given: dict[str, Any]) -> httpx.Response:
    answer = client.post(CHAT, json=given)
    assert answer.status_code == 200, answer.text
    return answer


def expected(client: httpx.Client, given: dict[str, Any]) -> dict[str, int]:
    """Cached tokens that are expected at each worker."""
    answer = client.post("/admin/explain", json=given)
    assert answer.status_code == 200, answer.text
    return {row["worker"]: row["expected_cached_tokens"] for row in answer.json()["candidates"]}


def metric(client: httpx.Client, name: str, label: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return sum(
        float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"prefix_router_{name}{{") and label in line
    )


def test_what_a_worker_evicted_is_expected_there_no_more() -> None:
    with publishing(*QUICK, *CACHE) as (worker, endpoint), listening((worker, endpoint)) as client:
        (name,) = expected(client, chat("Gardening"))
        heard_from(client, worker)
        send(client, chat("Gardening"))
        until(lambda: expected(client, chat("Gardening"))[name] > 800)
        assert send(client, chat("Gardening")).headers["x-router-reason"] == "home"
        until(lambda: metric(client, "kv_matches_total", "matched") > 0)
        before = metric(client, "kv_events_total", "stored")
        assert before > 0

        with httpx.Client(base_url=worker.url, timeout=60, trust_env=False) as stranger:
            for at in range(6):  # past the gateway, which cannot know
                send(stranger, chat(f"Chemistry, part {at},"))
        until(lambda: metric(client, "kv_events_total", "removed") > 0)
        until(lambda: expected(client, chat("Gardening"))[name] < 100)
        answer = send(client, chat("Gardening")).json()
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] < 100, "the worker says the same"


def heard_from(client: httpx.Client, worker: Program) -> None:
    """Let it store something until that is heard: what is published before somebody listens is lost."""
    label = f'worker="{worker.url.removeprefix("http://")}"'
    greetings = iter(range(1000))

    def heard() -> bool:
        with httpx.Client(base_url=worker.url, timeout=60, trust_env=False) as stranger:
            send(stranger, chat(f"{next(greetings)} words of greeting", words=100, max_tokens=1))
        return metric(client, "kv_events_total", f'kind="stored",{label}') > 0

    until(heard)


def test_a_prefix_evicted_at_one_worker_goes_where_it_is_still_held() -> None:
    with publishing(*QUICK, *CACHE) as one, publishing(*QUICK, *CACHE) as other, listening(one, other) as client:
        names = [worker.url.removeprefix("http://") for worker, _ in (one, other)]
        for worker, _ in (one, other):
            heard_from(client, worker)
        given = chat("Gardening")
        first = send(client, given).headers["x-router-worker"]
        until(lambda: expected(client, given)[first] > 800)
        workers = dict(zip(names, (one[0], other[0]), strict=True))
        (second,) = set(names) - {first}
        with httpx.Client(base_url=workers[second].url, timeout=60, trust_env=False) as stranger:
            send(stranger, given)  # it holds it too, though the gateway did not send it there
        until(lambda: expected(client, given)[second] > 800)
        with httpx.Client(base_url=workers[first].url, timeout=60, trust_env=False) as stranger:
            for at in range(6):
                send(stranger, chat(f"Chemistry, part {at},"))
        until(lambda: expected(client, given)[first] < 100)
        assert send(client, given).headers["x-router-worker"] == second


def test_a_worker_half_as_fast_is_noticed() -> None:
    decode = ("--decode-tokens-per-second", "2000")
    with (
        mock_workers(1, "--prefill-tokens-per-second", "8000", *decode) as fast,
        mock_workers(1, "--prefill-tokens-per-second", "4000", *decode) as slow,
        gateway([fast[0].url, slow[0].url]) as front,
        httpx.Client(base_url=front.url, timeout=60, trust_env=False) as client,
    ):
        ids = [each[0].url.removeprefix("http://") for each in (fast, slow)]

        def paces() -> list[float]:
            rows = {
                row["id"]: row["prefill_tokens_per_second"] for row in client.get("/admin/workers").json()["workers"]
            }
            return [rows[each] or 0.0 for each in ids]

        for at in range(24):
            send(client, chat(f"Matter number {at}", words=2000, stream=True))
            if at >= 7 and all(paces()):
                break
        quick, lame = paces()
        assert 0.35 < lame / quick < 0.7
        assert 3000 < quick < 20000
