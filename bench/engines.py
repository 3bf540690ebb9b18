"""The policies in front of two real engines: the gateway's own process, real models, real caches.

    python -m bench.engines                                   # llama.cpp, started here (needs .ci/fetch-model.sh)
    python -m bench.engines --cases shared --policies random prefix_cost --rounds 3 --json
    python -m bench.engines --engine vllm --worker http://127.0.0.1:9001 --worker http://127.0.0.1:9002

What is asked, and why that is a fair copy of a published experiment in small: `engine_load.py`. Every run has a gateway
of its own. With llama.cpp it has fresh engines too; engines that already run (`--worker`) are kept, and every prompt of
a run begins with a mark of its own, so that nothing cached before helps. Within a round every policy is asked the same
list of requests; the next round begins with the next policy, so that none always meets the machine's first minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

import httpx
from rich.console import Console

from bench.engine_client import Answer, ask_all
from bench.engine_figures import Figures, against, as_table, as_targets, figures, median
from bench.engine_load import CASES, Case, talks
from tests.support import llama
from tests.support.processes import gateway

POLICIES = ("random", "round_robin", "least_outstanding", "prefix_aware", "prefix_cost")
ENGINES = 2
# Its usual 4096 characters would take in the question too, as all prompts here are shorter: every one would be another.
OPTIONS = {"prefix_aware": {"prefix_length": 1024}}


def run(urls: Sequence[str], case: Case, policy: str, seed: int, mark: str, title: str) -> tuple[Figures, list[Answer]]:
    """One policy, one case, on these engines."""
    asked = talks(case, seed, mark)
    options = {"routing.options": OPTIONS.get(policy, {})}
    with gateway(list(urls), "--policy", policy, **options) as front, httpx.Client(base_url=front.url) as client:
        model = client.get("/v1/models").json()["data"][0]["id"]
        progress = Progress(title, case.talks * case.turns)
        answers = asyncio.run(ask_all(front.url, model, case, asked, progress.step))
        metrics = client.get("/metrics").text
    return figures(answers, len(urls), metrics), answers


class Progress:
    """A line on standard error now and then."""

    def __init__(self, title: str, requests: int) -> None:
        self.title, self.requests, self.done = title, requests, 0
        self.began = self.said = time.monotonic()

    def step(self) -> None:
        self.done += 1
        now = time.monotonic()
        if now - self.said >= 5.0 or self.done == self.requests:
            self.said = now
            print(
                f"{self.title}: {self.done} of {self.requests}, {now - self.began:.0f} s", file=sys.stderr, flush=True
            )


@contextmanager
def engines(given: Sequence[str], case: Case) -> Iterator[list[str]]:
    """Those that already run, or fresh ones."""
    if given:
        yield list(given)
        return
    with llama.llama_servers(ENGINES, case.cache_tokens) as urls:
        yield urls


def measure(asked: argparse.Namespace) -> dict[str, dict[str, list[Figures]]]:
    """Case -> policy -> its runs."""
    runs: dict[str, dict[str, list[Figures]]] = {case: {name: [] for name in asked.policies} for case in asked.cases}
    stamp = int(time.time()) % 10**6
    for turn in range(asked.rounds):
        for name in asked.cases:
            first = turn % len(asked.policies)
            for at, policy in enumerate(asked.policies[first:] + asked.policies[:first]):
                mark = f"[{stamp:06}-{turn:02}-{at:02}] " if asked.worker else ""
                title = f"round {turn + 1} of {asked.rounds}, {name}, {policy}"
                with engines(asked.worker, CASES[name]) as urls:
                    came, answers = run(urls, CASES[name], policy, asked.seed + turn, mark, title)
                for wrong in sorted({answer.error for answer in answers if answer.error}):
                    print(f"{title}: {wrong}", file=sys.stderr)
                runs[name][policy].append(came)
    return runs


def as_json(asked: argparse.Namespace, runs: dict[str, dict[str, list[Figures]]]) -> str:
    cases = {}
    for name, policies in runs.items():
        medians = {policy: median(each) for policy, each in policies.items()}
        cases[name] = {
            "policies": {
                policy: asdict(medians[policy]) | {"rounds": [asdict(e) for e in each]}
                for policy, each in policies.items()
            }
        }
        if name == "shared" and {"random", "prefix_cost"} <= medians.keys():
            gains = against(medians["random"], medians["prefix_cost"])
            cases[name]["targets"] = {
                what: {"is": got, "target": target, "reached": reached}
                for what, (got, target, reached) in gains.items()
            }
    return json.dumps({"engine": asked.engine, "seed": asked.seed, "rounds": asked.rounds, "cases": cases}, indent=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--engine", choices=("llama", "vllm"), default="llama", help="llama.cpp is started here (llama)"
    )
    parser.add_argument("--worker", action="append", default=[], metavar="URL", help="an engine that already runs")
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=1, help="the median of so many (1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="the figures as JSON on standard output")
    asked = parser.parse_args()
    if asked.engine == "vllm" and not asked.worker:
        parser.error("vLLM's servers are not started here: give each one's --worker URL")
    if not asked.worker and (lacks := llama.missing()):
        parser.error(f"this needs {lacks}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started here is ended too
    runs = measure(asked)
    if asked.json:
        print(as_json(asked, runs))
        return
    console = Console(width=120, highlight=False)
    for name, policies in runs.items():
        medians = {policy: median(each) for policy, each in policies.items()}
        console.print(as_table(name, medians), "")
        if name == "shared" and {"random", "prefix_cost"} <= medians.keys():
            console.print(as_targets(medians["random"], medians["prefix_cost"]), "")


if __name__ == "__main__":
    main()
