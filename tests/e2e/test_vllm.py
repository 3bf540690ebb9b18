"""The same in front of two real vLLM servers, on request only: REAL_VLLM=1, after `bench/vllm_setup.sh`."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from bench.engine_load import SMALL
from bench.engines import run
from tests.support import engines, vllm

WANTED = os.environ.get("REAL_VLLM") == "1"
# vLLM's cache has room for at least one prompt of the greatest length, so the prefixes are longer here.
CASE = replace(SMALL, prefix=(3200, 3800), cache_tokens=2560)

pytestmark = [
    pytest.mark.skipif(not WANTED, reason="REAL_VLLM=1 asks for it: 3.5 GB and some minutes"),
    pytest.mark.xdist_group("docker"),  # with the other tests that need the whole machine: one after the other
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def runs() -> engines.Runs:
    """One after the other on the same servers: each run's prompts begin with a mark of its own."""
    assert vllm.is_there(), "bench/vllm_setup.sh has not been run"
    with vllm.vllm_servers(2, CASE.cache_tokens) as urls:
        return {
            policy: engines.Run(*run(urls, CASE, policy, 0, f"[{at}] ", policy))
            for at, policy in enumerate((engines.BASE, engines.NEW))
        }


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
