"""Microseconds of one decision: read, hash, choose and commit, without any I/O."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from timeit import repeat

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.load import SESSIONS, body
from router.contracts import PolicyTools
from router.core.fleet import Fleet
from router.core.health import PROBE_OK
from router.core.mind import Caller, Mind
from router.dialects.openai import CHAT, OpenAI
from router.plugins import build_policy
from router.types import worker_from_url

ROUNDS, CALLS = 7, 500


def mind_of(workers: int) -> Mind:
    fleet = Fleet()
    fleet.reconcile(worker_from_url(f"http://worker-{at}:8000") for at in range(workers))
    for seat in fleet.seats.values():
        fleet.feed(seat, PROBE_OK, 0.0)
    return Mind(fleet, build_policy("prefix_cost", {}, PolicyTools(fleet.ring, Random(0))))


def microseconds(workers: int, size: int) -> float:
    """The best of some rounds, so that other work on the machine counts least."""
    mind, caller, dialect = mind_of(workers), Caller(), OpenAI()
    bodies = [body(session, size, stream=True) for session in range(SESSIONS)]
    turn = iter(range(10**9))

    def once() -> None:
        now = next(turn) * 0.001
        prompt = dialect.read(CHAT, bodies[next(turn) % SESSIONS])
        ask = mind.weigh(prompt, caller)
        choice = mind.choose(ask, prompt.model, (), now)
        assert choice is not None
        mind.commit(ask, choice, now, streaming=True).release()

    return min(repeat(once, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


def main() -> None:
    rows = {f"{workers} workers, {size // 1024} KB": microseconds(workers, size)
            for workers in (2, 8, 64) for size in (2048, 32768)}  # fmt: skip
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=2))
        return
    for name, cost in rows.items():
        print(f"{name:20}{cost:8.1f} us a decision")


if __name__ == "__main__":
    main()
