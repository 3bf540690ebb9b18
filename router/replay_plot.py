"""A picture of a replay: how soon first tokens came, and what was cached and in time. Needs the extra `plot`."""

from __future__ import annotations

from importlib import import_module
from os import W_OK, access
from pathlib import Path
from typing import Any

from router.layers import SettingsError
from router.replay_run import Load, Plan

MOST_POINTS = 500  # of a curve: a picture has no more
FEWEST_SECONDS = 0.001  # what is drawn as zero on a logarithmic scale


def check(path: Path) -> None:
    """Say what would go wrong before the work is done. Raises SettingsError."""
    faults = []
    try:
        import_module("matplotlib")
    except ImportError:
        faults.append("--plot needs matplotlib: pip install 'prefix-router[plot]'")
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        faults.append(f"--plot {path}: expected a file name that ends in .png, .svg or .pdf")
    if path.parent.is_dir() and not access(path if path.exists() else path.parent, W_OK):
        faults.append(f"--plot {path}: cannot be written")
    if not path.parent.is_dir():
        faults.append(f"--plot {path}: there is no folder {path.parent}")
    if faults:
        raise SettingsError(faults)


def draw(path: Path, plan: Plan, load: Load) -> None:
    import_module("matplotlib").use("Agg")
    plots = import_module("matplotlib.pyplot")
    height = max(4.5, 1.5 + 0.42 * len(load.policies))
    figure, (left, right) = plots.subplots(1, 2, figsize=(12.5, height), width_ratios=(3, 2), layout="constrained")
    colours = [plots.get_cmap("tab10")(at % 10) for at in range(len(load.policies))]
    _curves(left, load, colours)
    _bars(right, load, colours)
    at = "" if load.reached is None else f", prefill busy {load.reached:.0%} with the reference"
    replicas = f", {plan.setup.replicas} router replicas" if plan.setup.replicas > 1 else ""
    figure.suptitle(f"{plan.trace}: {plan.setup.workers} workers{replicas}{at}")
    figure.savefig(path, dpi=130)
    plots.close(figure)


def _curves(axes: Any, load: Load, colours: list[Any]) -> None:
    for colour, (label, outcome) in zip(colours, load.policies.items(), strict=True):
        step = max(1, len(outcome.times) // MOST_POINTS)
        times = [max(FEWEST_SECONDS, seconds) for seconds in [*outcome.times[::step], outcome.times[-1]]]
        shares = [100 * (at + 1) / len(times) for at in range(len(times))]
        axes.plot(times, shares, label=label, color=colour, linewidth=1.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("time to first token, seconds")
    axes.set_ylabel("requests with a first token by then, %")
    axes.set_ylim(0, 101)
    axes.grid(True, which="both", alpha=0.25)
    axes.legend(loc="upper left", fontsize=9)


def _bars(axes: Any, load: Load, colours: list[Any]) -> None:
    labels = list(load.policies)
    found = [outcome.figures for outcome in load.policies.values()]
    rows = range(len(labels))
    axes.barh([at - 0.19 for at in rows], [100 * each.inside_target for each in found], 0.36, color=colours)
    axes.barh(
        [at + 0.19 for at in rows], [100 * each.hit_share for each in found], 0.36,
        color=colours, alpha=0.45, hatch="///", edgecolor="white",
    )  # fmt: skip
    for at, each in enumerate(found):
        axes.text(100 * each.inside_target + 1, at - 0.19, f"{100 * each.inside_target:.1f}", va="center", fontsize=8)
        axes.text(100 * each.hit_share + 1, at + 0.19, f"{100 * each.hit_share:.1f}", va="center", fontsize=8)
    axes.set_yticks(list(rows), labels)
    axes.invert_yaxis()
    axes.set_xlim(0, 112)
    axes.set_xlabel("plain: requests inside the TTFT target, %\nhatched: prompt tokens from cache, %")
    axes.grid(True, axis="x", alpha=0.25)
