"""What a replay shows: progress while it runs, then a table for people or one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from router.replay.calibrate import GOOD
from router.replay.figures import NUMBERS, Figures
from router.replay_run import Load, Outcome, Plan

PIPE_WIDTH = 120  # columns, where no terminal says
MISSED = 0.03  # of the time: a load this far from what was asked is worth a word


class Watch:
    """A bar on standard error while it is a terminal, or when `asked`. It is gone when all is over."""

    def __init__(self, *, asked: bool = False) -> None:
        console = Console(stderr=True, force_terminal=True if asked else None)
        columns = (TextColumn("{task.description:>20}"), BarColumn(30), TextColumn("{task.completed}/{task.total}"))
        self._bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._shown = console.is_terminal
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        if self._shown:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._bar.stop()

    def begin(self, label: str, requests: int) -> Callable[[int], None] | None:
        if not self._shown:
            return None
        self._bar.reset(self._task, description=label, total=requests)
        return lambda ended: self._bar.advance(self._task, ended)


def show(plan: Plan, requests: int, loads: Sequence[Load]) -> None:
    console = Console(soft_wrap=True, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    replicas = f"{plan.setup.replicas} router replica{'s' if plan.setup.replicas > 1 else ''}"
    prompts = f"{requests:,} prompts{f' in {plan.copies} copies' if plan.copies > 1 else ''}"
    console.print(f"{plan.trace}: {prompts}, {plan.setup.workers} workers, {replicas}", style="bold")
    for load in loads:
        console.print(f"\n{_heading(load)}{f', mean of {plan.seeds} seeds' if plan.seeds > 1 else ''}\n")
        console.print(_table(load, plan))
    console.print(_legend(plan), style="dim")


def _is_searched(load: Load) -> bool:
    return any(outcome.capacity is not None for outcome in load.policies.values())


def _heading(load: Load) -> str:
    if _is_searched(load) or load.scale is None:
        return f"the highest multiple of the trace's own rate with {GOOD:.0%} inside the target"
    if load.busy is None or load.reached is None:
        return f"at {load.scale:.2f} times the trace's own rate"
    near = abs(load.reached - load.busy) < MISSED
    missed = "" if near else f"; {load.busy:.0%} was asked, and nothing nearer was found"
    return f"prefill busy {load.reached:.0%} with the reference, at {load.scale:.2f} times the trace's own rate{missed}"


def _table(load: Load, plan: Plan) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("policy", no_wrap=True)
    heads = ["carries"] if _is_searched(load) else []
    heads += ["mean", "p50", "p90", "p99", "cached", "inside"]
    heads += ["±"] if plan.seeds > 1 else []
    heads += ["imbalance", "busy"]
    heads += [f"after {plan.setup.change}: cached", "p99", "inside"] if plan.setup.change else []
    for head in heads:
        table.add_column(head, justify="right")
    for label, outcome in load.policies.items():
        carried = [] if outcome.capacity is None else [f"{outcome.capacity:.2f}"]
        table.add_row(label, *carried, *_cells(outcome, spread=plan.seeds > 1), *_after(outcome.after))
    return table


def _cells(outcome: Outcome, *, spread: bool) -> list[str]:
    found = outcome.figures
    low, high = outcome.spread["inside_target"]
    times = (found.ttft_mean, found.ttft_p50, found.ttft_p90, found.ttft_p99)
    cells = [*map(_seconds, times), _percent(found.hit_share), _percent(found.inside_target)]
    cells += [f"{50 * (high - low):.1f}"] if spread else []
    return [*cells, f"{found.imbalance:.2f}", f"{found.busy:.0%}"]


def _after(after: Figures | None) -> list[str]:
    if after is None:
        return []
    return [_percent(after.hit_share), _seconds(after.ttft_p99), _percent(after.inside_target)]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds < 100 else f"{seconds:.0f}"


def _legend(plan: Plan) -> str:
    spread = "; ±: half of what the seeds differ by" if plan.seeds > 1 else ""
    after = f"; after {plan.setup.change}: the tenth of the requests that follows it" if plan.setup.change else ""
    return (
        "\nTTFT in seconds; cached: of the prompt tokens; inside: of the requests, TTFT within 2 s or twice the\n"
        "prompt's prefill alone; imbalance: the busiest worker's prefill time against the mean; the first tenth of\n"
        f"the requests is not counted{after}{spread}"
    )


def print_json(plan: Plan, requests: int, loads: Sequence[Load]) -> None:
    """One load: the promised object. Several: that of the first, and all of them under `loads`."""
    setup = plan.setup
    said: dict[str, Any] = {"trace": plan.trace, "workers": setup.workers, "replicas": setup.replicas}
    said |= {
        "seed": plan.seed,
        "seeds": plan.seeds,
        "prompts": requests,
        "copies": plan.copies,
        "change": setup.change or None,
    }
    said |= _load(loads[0])
    if len(loads) > 1:
        said["loads"] = [_load(load) for load in loads]
    sys.stdout.write(json.dumps(said, indent=2) + "\n")


def _load(load: Load) -> dict[str, Any]:
    policies = {label: _outcome(outcome) for label, outcome in load.policies.items()}
    return {"busy": load.busy, "scale": load.scale, "busy_reached": load.reached, "policies": policies}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    said = _figures(outcome.figures)
    said["spread"] = {name: [round(low, 5), round(high, 5)] for name, (low, high) in outcome.spread.items()}
    said["tenths"] = [{name: round(value, 5) for name, value in tenth.items()} for tenth in outcome.tenths]
    if outcome.after is not None:
        said["after_change"] = _figures(outcome.after)
    if outcome.capacity is not None:
        said["capacity"] = outcome.capacity
    return said


def _figures(found: Figures) -> dict[str, Any]:
    numbers = {name: round(float(getattr(found, name)), 5) for name in NUMBERS}
    return {"requests": found.requests, **numbers, "reasons": dict(found.reasons)}
