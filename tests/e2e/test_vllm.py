"""The same in front of two real vLLM servers, on request only: REAL_VLLM=1, after `bench/vllm_setup.sh`.

And what only they can show: the events of a real engine's cache, heard by the gateway.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bench.engine_figures import DELIVERED, PREDICTED, total
from bench.engine_load import SMALL, system_text
from bench.engines import run
from router.core.fingerprint import DEPTHS
from tests.support import engines, vllm
from tests.support.processes import gateway, until

WANTED = os.environ.get("REAL_VLLM") == "1"
# vLLM's cache has room for at least one prompt of the greatest length, so the prefixes are longer here.
CASE = replace(SMALL, prefix=(3200, 3800), cache_tokens=2560)
BLOCK = vllm.BLOCK_TOKENS
STEP = max(far - near for near, far in pairwise(DEPTHS) if far < CASE.prefix[1]) / 3.0  # a rung, in tokens

pytestmark = [
    pytest.mark.skipif(not WANTED, reason="REAL_VLLM=1 asks for it: 3.5 GB and some minutes"),
    pytest.mark.xdist_group("docker"),  # with the other tests that need the whole machine: one after the other
    pytest.mark.timeout(900),
]


class Servers(NamedTuple):
    urls: list[str]
    events: list[str]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Two of them for all tests: whatever is asked begins with a mark of its own."""
    assert vllm.is_there(), "bench/vllm_setup.sh has not been run"
    events = [f"tcp://127.0.0.1:{vllm.free_port()}" for _ in range(2)]
    with vllm.vllm_servers(2, CASE.cache_tokens, events) as urls:
        yield Servers(urls, events)


@pytest.fixture(scope="module")
def runs(servers: Servers) -> engines.Runs:
    return {
        policy: engines.Run(*run(servers.urls, CASE, policy, 0, f"[{at}] ", policy))
        for at, policy in enumerate((engines.BASE, engines.NEW))
    }


@pytest.fixture
def told(servers: Servers) -> Iterator[httpx.Client]:
    """A gateway that hears the events: the engines' sockets connect, so it binds."""
    workers = [
        {"url": url, "kv_events": {"endpoint": events, "bind": True, "topic": vllm.TOPIC}}
        for url, events in zip(*servers, strict=True)
    ]
    with gateway([], workers=workers) as front, connected(front.url) as client:
        greetings = iter(range(10_000))
        for url in servers.urls:  # what is published before somebody listens is lost

            def heard(url: str = url) -> bool:
                ask(url, chat(f"Greeting {next(greetings)} for {front.url}. " * 8, "Hello."))
                return counted(client, "kv_events", worker=url.removeprefix("http://"), kind="stored") > 0

            until(heard)
        yield client


@pytest.fixture
def untold(servers: Servers) -> Iterator[httpx.Client]:
    """A gateway that knows only what it sent where."""
    with gateway(servers.urls) as front, connected(front.url) as client:
        yield client


def connected(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=120, trust_env=False)


def prefix(mark: str, at: int = 0) -> str:
    return f"[{mark} {at}] " + system_text(at, CASE.prefix[0] + 100 * at, Random(at))


def chat(system: str, question: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return {"model": vllm.MODEL_NAME, "messages": messages, "max_tokens": 2, "temperature": 0, "ignore_eos": True}


class Cached(NamedTuple):
    """What came of one request: tokens by the engine's own count."""

    prompt_tokens: int
    cached_tokens: int


def ask(front: httpx.Client | str, body: dict[str, Any]) -> Cached:
    """An address is an engine's own."""
    if isinstance(front, str):
        with connected(front) as client:
            return ask(client, body)
    answer = front.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    return Cached(usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"])


def expected(front: httpx.Client, body: dict[str, Any]) -> float:
    """The share of this prompt that is expected in the cache of the worker it would go to now. A share, since the
    gateway takes all prompts to have the same bytes a token, and these differ by some percent."""
    answer = front.post("/admin/explain", json=body).json()
    chosen = next(row for row in answer["candidates"] if row["worker"] == answer["chosen"])
    return chosen["expected_cached_tokens"] / answer["prompt_tokens"]


def counted(front: httpx.Client, name: str, **labels: str) -> float:
    families = text_string_to_metric_families(front.get("/metrics").text)
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == f"prefix_router_{name}_total" and labels.items() <= sample.labels.items()
    )


def test_every_streamed_answer_is_whole(runs: engines.Runs) -> None:
    engines.every_answer_is_whole(runs, CASE)


def test_prompts_meet_the_cache_that_holds_their_beginning(runs: engines.Runs) -> None:
    engines.prompts_meet_their_cache(runs)


def test_both_engines_work_alike(runs: engines.Runs) -> None:
    engines.requests_are_spread(runs)


def test_the_metrics_count_the_cached_tokens_that_the_engines_reported(runs: engines.Runs) -> None:
    engines.the_metrics_say_what_the_engines_reported(runs)


def test_the_cached_tokens_are_those_that_were_expected(runs: engines.Runs) -> None:
    engines.predictions_hold(runs)


def test_the_gain_is_recorded(runs: engines.Runs) -> None:
    engines.record(runs, "vllm")


def test_what_the_engines_say_to_hold_is_what_is_expected_of_them(told: httpx.Client) -> None:
    stored = counted(told, "kv_events", kind="stored")
    systems = [prefix("held", at) for at in range(2)]
    blocks = sum(ask(told, chat(system, "Is it open?")).prompt_tokens // BLOCK for system in systems)
    until(lambda: counted(told, "kv_events", kind="stored") - stored >= blocks)
    until(lambda: all(matched_more(told, chat(system, "When?")) for system in systems))

    matched = counted(told, "kv_matches", result="matched")
    for turn in range(4):
        for system in systems:
            body = chat(system, f"What about case {turn}?")
            share = expected(told, body)
            came = ask(told, body)
            assert came.cached_tokens > 0.8 * came.prompt_tokens
            late = came.cached_tokens - share * came.prompt_tokens
            assert -BLOCK <= late <= BLOCK + STEP  # a prefix ends within a block, and between two rungs
    assert counted(told, "kv_matches", result="matched") - matched >= 8
    metrics = told.get("/metrics").text
    assert 0.9 <= total(metrics, PREDICTED) / total(metrics, DELIVERED) <= 1.1


def test_what_an_engine_evicted_is_expected_no_more(told: httpx.Client, untold: httpx.Client, servers: Servers) -> None:
    again = chat(prefix("evicted"), "When?")
    for front in (told, untold):
        ask(front, chat(prefix("evicted"), "Is it open?"))
    until(lambda: matched_more(told, again))
    whole = expected(told, again)
    assert whole > 0.8

    def fill(text: str) -> None:
        """Past the gateways, which cannot know."""
        for url in servers.urls:
            ask(url, chat(text, "Hm?"))

    for at in range(100):  # a few blocks at a time, and a prefix goes from its end
        fill(f"[{at}] " + "Other people's parcels and letters. " * 20)
        if expected(told, again) < 0.7 * whole:
            break
    share = expected(told, again)
    assert 0.1 < share < 0.7 * whole
    assert expected(untold, again) > 0.8, "it cannot know"
    came = ask(told, again)
    late = came.cached_tokens - share * came.prompt_tokens
    assert -BLOCK <= late <= 2 * BLOCK + STEP  # rounded down to a rung and to a block less

    for at in range(4):
        fill(prefix("filling", at))
    until(lambda: expected(told, again) < BLOCK / CASE.prefix[0] * 4)
    assert expected(untold, again) > 0.8, "it cannot know"
    assert ask(told, again).cached_tokens == 0, "the engine says the same"


def matched_more(told: httpx.Client, body: dict[str, Any]) -> bool:
    """The engines had a word on this prompt; what they hold was learnt in the background."""
    before = counted(told, "kv_matches", result="matched")
    return expected(told, body) > 0 and counted(told, "kv_matches", result="matched") > before
