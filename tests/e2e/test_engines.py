"""The gateway in front of two real engines: a real model, real caches, and nobody's idea of how they behave.

Four long prefixes, of which each engine's cache holds about half, asked in turns by several users at once: a small
copy of the shared case of `bench/engine_load.py`, first with `random`, then, with fresh engines, with the default.
"""

from __future__ import annotations

import os

import pytest

from bench.engine_load import SMALL
from bench.engines import run
from tests.support import engines, llama

pytestmark = [
    pytest.mark.xdist_group("docker"),  # with the other tests that need the whole machine: one after the other
    pytest.mark.timeout(400),
]


@pytest.fixture(scope="module")
def runs() -> engines.Runs:
    lacks = llama.missing()
    if lacks and os.environ.get("CI") == "true":
        pytest.fail(f"needs {lacks}, and under CI it must be there", pytrace=False)
    if lacks:
        pytest.skip(f"needs {lacks}")
    assert llama.is_intact()
    came = {}
    for policy in (engines.BASE, engines.NEW):
        with llama.llama_servers(2, SMALL.cache_tokens) as urls:
            came[policy] = engines.Run(*run(urls, SMALL, policy, 0, "", policy))
    return came


def test_every_streamed_answer_is_whole(runs: engines.Runs) -> None:
    engines.every_answer_is_whole(runs, SMALL)


def test_prompts_meet_the_cache_that_holds_their_beginning(runs: engines.Runs) -> None:
    engines.prompts_meet_their_cache(runs)


def test_both_engines_work_alike(runs: engines.Runs) -> None:
    engines.requests_are_spread(runs)


def test_the_metrics_count_the_cached_tokens_that_the_engines_reported(runs: engines.Runs) -> None:
    engines.the_metrics_say_what_the_engines_reported(runs)


def test_the_cached_tokens_are_those_that_were_expected(runs: engines.Runs) -> None:
    engines.predictions_hold(runs)


def test_the_gain_is_recorded(runs: engines.Runs) -> None:
    engines.record(runs, "llama")
