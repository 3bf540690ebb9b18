"""A large fleet, simulated: one gateway against many that know of each other more or less, on one trace.

Each row is one run of `prefix-router replay`, whose command is shown. The trace is played in so many copies at once,
each with prompts of its own, that every worker has as much to do as in a small fleet.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

RANDOM, LEAST_WORK = ["--policy", "random"], ["--policy", "least_work"]
COST = ["--policy", "prefix_cost"]
LOOKING, NOTHING = ["--no-share", "--poll", "0.25"], ["--no-share", "--poll", "0"]
SHOWN = ("hit_share", "ttft_mean", "ttft_p50", "ttft_p99", "inside_target", "imbalance", "busy")
Row = dict[str, Any]


def settings_of(replicas: int) -> dict[str, list[str]]:
    many = ["--replicas", str(replicas)]
    return {
        "random": RANDOM,
        "least work, one gateway": LEAST_WORK,
        "one gateway": COST,
        f"{replicas} gateways, sharing prefixes and load": [*COST, *many, "--poll", "0.25"],
        f"{replicas} gateways, looking at the workers' queues": [*COST, *many, *LOOKING],
        f"{replicas} gateways, each for itself": [*COST, *many, *NOTHING],
    }


def run(command: list[str]) -> Row:
    """One replay; its figures, and how long it took."""
    began = time.monotonic()
    said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    (figures,) = said["policies"].values()
    return {**{name: figures[name] for name in SHOWN}, "requests": figures["requests"],
            "seconds": round(time.monotonic() - began)}  # fmt: skip


HEAD = f"{'':46}{'cached':>8}{'mean':>8}{'p50':>8}{'p99':>8}{'inside':>9}{'imbalance':>11}{'busy':>7}{'took':>8}"


def line(name: str, row: Row) -> str:
    return (
        f"{name:46}{row['hit_share']:8.1%}{row['ttft_mean']:8.2f}{row['ttft_p50']:8.2f}{row['ttft_p99']:8.2f}"
        f"{row['inside_target']:9.1%}{row['imbalance']:11.2f}{row['busy']:7.0%}{row['seconds']:6} s"
    )


def draw(path: Path, rows: dict[str, Row], title: str) -> None:
    import_module("matplotlib").use("Agg")
    plots = import_module("matplotlib.pyplot")
    figure, axes = plots.subplots(1, 4, figsize=(13, 1.6 + 0.4 * len(rows)), sharey=True, layout="constrained")
    names = list(rows)
    shown = (
        ("hit_share", 100.0, "prompt tokens from cache, %"), ("ttft_mean", 1.0, "time to first token, mean, s"),
        ("inside_target", 100.0, "inside the target, %"), ("imbalance", 1.0, "busiest worker / mean"),
    )  # fmt: skip
    for each, (key, times, label) in zip(axes, shown, strict=True):
        values = [row[key] * times for row in rows.values()]
        bars = each.barh(
            range(len(names)), values, 0.6, color=[plots.get_cmap("tab10")(at) for at in range(len(names))]
        )
        each.bar_label(bars, fmt="%.1f" if times > 1 else "%.2f", padding=2, fontsize=8)
        each.set_xlim(0, max(values) * 1.18)
        each.set_xlabel(label)
        each.grid(True, axis="x", alpha=0.25)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
    plots.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("trace", help="a file as for prefix-router replay, without sessions")
    parser.add_argument("--workers", type=int, default=1000, help="(1000)")
    parser.add_argument("--replicas", type=int, default=64, help="(64)")
    parser.add_argument("--copies", type=int, default=100, help="of the trace at once (100)")
    parser.add_argument("--limit", type=int, default=1000, help="the first prompts of the trace (1000)")
    parser.add_argument("--scale", type=float, default=2.7, help="times the trace's own rate (2.7)")
    parser.add_argument("--table-hashes", type=int, default=600_000, help="of each gateway (600000)")
    parser.add_argument("--plot", type=Path, help="a picture: FILE.png")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    common = [sys.executable, "-m", "router", "replay", asked.trace]
    for flag in ("workers", "copies", "limit", "scale", "table_hashes"):
        common += [f"--{flag.replace('_', '-')}", str(getattr(asked, flag))]
    progress = ["--progress"] if sys.stderr.isatty() else []
    rows: dict[str, Row] = {}
    if not asked.json:
        print(HEAD, flush=True)
    for name, more in settings_of(asked.replicas).items():
        print(f"{name}: prefix-router {' '.join([*common[3:], *more])}", file=sys.stderr, flush=True)
        rows[name] = run([*common, *more, *progress, "--json"])
        if not asked.json:
            print(line(name, rows[name]), flush=True)
    if asked.json:
        print(json.dumps(rows, indent=2))
    if asked.plot is not None:
        draw(
            asked.plot,
            rows,
            f"{asked.workers:,} workers, {asked.copies * asked.limit:,} requests: {Path(asked.trace).name}",
        )


if __name__ == "__main__":
    main()
