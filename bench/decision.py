"""Microseconds of one decision, without any I/O: what it costs, and how that grows with the fleet and by policy."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from timeit import Timer

sys.path.append(str(Path(__file__).parents[1]))  # behind PYTHONPATH, which may name the compiled form

from bench.load import SESSIONS, body
from router.contracts import PolicyTools
from router.core.fleet import Fleet
from router.core.health import PROBE_OK
from router.core.mind import Caller, Mind
from router.dialects.openai import CHAT, OpenAI
from router.plugins import build_policy, policy_names
from router.types import worker_from_url

ROUNDS, LEAST_SECONDS = 5, 0.04  # a timing is the least of so many, each of so long
SIZES = (2048, 32_768, 262_144)
SMALL, LARGE = 8, 256  # fleets whose costs are compared
ACTIVE_EACH, PACE = 2, 20_000.0  # requests that wait at each worker of a busy fleet, and its tokens a second
STATES = ("known", "new", "busy")


def mind_of(workers: int, policy: str = "prefix_cost") -> Mind:
    fleet = Fleet()
    fleet.reconcile(worker_from_url(f"http://worker-{at}:8000") for at in range(workers))
    for seat in fleet.seats.values():
        fleet.feed(seat, PROBE_OK, 0.0)
    return Mind(fleet, build_policy(policy, {}, PolicyTools(fleet.ring, Random(0))))


def least_microseconds(once: Callable[[], object]) -> float:
    """The best of some rounds, so that other work on the machine counts least."""
    timer = Timer(once)
    calls = 16
    while (took := timer.timeit(calls)) < LEAST_SECONDS:
        calls = max(calls + 1, int(calls * min(LEAST_SECONDS * 1.2 / max(took, 1e-9), 16.0)))
    return min(took, *timer.repeat(ROUNDS - 1, calls)) / calls * 1e6


def whole(workers: int, size: int, policy: str = "prefix_cost") -> float:
    """Read, hash, choose and commit: chats of this size of 64 sessions, over and over."""
    mind, caller, dialect, turn = mind_of(workers, policy), Caller(), OpenAI(), count()
    bodies = [body(session, size, stream=True) for session in range(SESSIONS)]

    def once() -> None:
        at = next(turn)
        prompt = dialect.read(CHAT, bodies[at % SESSIONS])
        ask = mind.weigh(prompt, caller)
        choice = mind.choose(ask, prompt.model, (), at * 0.001)
        assert choice is not None
        mind.commit(ask, choice, at * 0.001, streaming=True).release()

    return least_microseconds(once)


def choosing(workers: int, policy: str, state: str) -> float:
    """Choose and commit alone, which is all that can depend on the fleet. `known`: prompts of 2 KB that some worker
    holds; `new`: nobody holds them; `busy`: known ones, while requests wait at every worker."""
    mind, caller, dialect, turn = mind_of(workers, policy), Caller(), OpenAI(), count(1)
    if state == "busy":
        for seat in mind.fleet.seats.values():
            seat.load.learn_pace(PACE, 1.0)
            for _ in range(ACTIVE_EACH):
                seat.load.charge(500.0, 0.0, streaming=True)
    prompts = [dialect.read(CHAT, body(session, 2048, stream=True)) for session in range(SESSIONS)]
    for prompt in prompts if state != "new" else ():
        ask = mind.weigh(prompt, caller)
        choice = mind.choose(ask, prompt.model, (), 0.0)
        assert choice is not None
        mind.commit(ask, choice, 0.0, streaming=True).release()
    asks = [mind.weigh(prompt, caller) for prompt in prompts]
    if state == "new":
        mind.holders.note = lambda *_: None  # type: ignore[method-assign]  # so that they stay new

    def once() -> None:
        at = next(turn)
        ask, now = asks[at % SESSIONS], at * 1e-6
        choice = mind.choose(ask, prompts[0].model, (), now)
        assert choice is not None
        mind.commit(ask, choice, now, streaming=True).release()

    return least_microseconds(once)


def joining(workers: int) -> float:
    """One worker joins or leaves: the whole fleet is placed on the ring anew."""
    fleet = mind_of(workers).fleet
    all_of = [seat.worker for seat in fleet.seats.values()]
    joins = worker_from_url("http://worker-that-joins:8000")
    turn = count()
    return least_microseconds(lambda: fleet.reconcile([*all_of, joins] if next(turn) % 2 == 0 else all_of))


def grown(costs: dict[str, float]) -> float | None:
    """How many times the small fleet's cost the large one's is, where both were measured."""
    small, large = costs.get(str(SMALL)), costs.get(str(LARGE))
    return round(large / small, 2) if small and large else None


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=numbers, default=[8, 64, 256, 1000], help="fleets (8,64,256,1000)")
    parser.add_argument("--policies", help="with a comma between (all; the others follow the default one)")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    policies = asked.policies.split(",") if asked.policies else sorted(policy_names(), key=lambda n: n != "prefix_cost")
    rows: dict[str, dict[str, float]] = {}
    for size in SIZES:
        rows[f"{policies[0]}, all of it, {size // 1024} KB"] = {
            str(workers): round(whole(workers, size, policies[0]), 2) for workers in asked.workers
        }
    for policy in policies:
        for state in STATES:
            rows[f"{policy}, choosing, {state}"] = {
                str(workers): round(choosing(workers, policy, state), 2) for workers in asked.workers
            }
    rows["a worker joins or leaves"] = {str(workers): round(joining(workers), 1) for workers in asked.workers}
    if asked.json:
        print(json.dumps({name: {**costs, "growth": grown(costs)} for name, costs in rows.items()}, indent=2))
        return
    print(f"{'us a decision, by workers':38}" + "".join(f"{each:>9}" for each in asked.workers) + f"{LARGE:>8}/{SMALL}")
    for name, costs in rows.items():
        ratio = grown(costs)
        print(f"{name:38}" + "".join(f"{cost:9.1f}" for cost in costs.values()) + (f"{ratio:10.2f}" if ratio else ""))


if __name__ == "__main__":
    main()
