"""What must hold of any two real engines behind the gateway, whatever the machine: nothing here is a timing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from bench.engine_client import Answer
from bench.engine_figures import Figures, against
from bench.engine_load import Case

BASE, NEW = "random", "prefix_cost"
MEASURED = Path(__file__).parents[2] / ".cache" / "measured"


class Run(NamedTuple):
    """One policy's, in front of empty caches."""

    figures: Figures
    answers: list[Answer]


Runs = Mapping[str, Run]


def every_answer_is_whole(runs: Runs, case: Case) -> None:
    for name, run in runs.items():
        assert [answer.error for answer in run.answers if answer.error] == [], name
        assert run.figures.requests == case.talks * case.turns
        assert {answer.output_tokens for answer in run.answers} == {case.answer_tokens}
        assert {answer.finish for answer in run.answers} == {"length"}
        assert all(answer.text for answer in run.answers)


def prompts_meet_their_cache(runs: Runs) -> None:
    assert runs[NEW].figures.hit_share >= 0.80
    assert runs[NEW].figures.hit_share >= runs[BASE].figures.hit_share + 0.25


def requests_are_spread(runs: Runs) -> None:
    assert runs[NEW].figures.imbalance <= 1.10


def the_metrics_say_what_the_engines_reported(runs: Runs) -> None:
    for name, run in runs.items():
        reported = sum(answer.cached_tokens for answer in run.answers)
        assert run.figures.delivered_cached_tokens == reported, name


def predictions_hold(runs: Runs) -> None:
    assert 0.90 <= runs[NEW].figures.predicted_to_delivered <= 1.10


def record(runs: Runs, engine: str) -> None:
    """Write the figures to .cache/measured. Nothing is asserted: timings on a shared machine wander."""
    gains = {name: got for name, (got, _, _) in against(runs[BASE].figures, runs[NEW].figures).items()}
    MEASURED.mkdir(parents=True, exist_ok=True)
    policies = {name: asdict(run.figures) for name, run in runs.items()}
    (MEASURED / f"{engine}.json").write_text(json.dumps({"gains": gains, "policies": policies}, indent=2))
