"""A picture of a measurement: CPU a request or an event, and latencies, a group of bars for each. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from backends.bench_decoding.picture import faults as faults
from bench.path.figures import COLUMNS, Column, Figures

SHOWN = ("cpu_json_2k", "cpu_json_32k", "cpu_json_256k", "cpu_sse", "added", "p99_c512")


def draw(path: Path, about: str, figures: Figures, base: str) -> None:
    """Raises ValueError where there is nothing to show."""
    columns = [column for column in COLUMNS if column.name in SHOWN and _peers(figures, column)]
    if not columns:
        raise ValueError("no figure that the picture shows was measured")
    import_module("matplotlib").use("Agg")
    plots = import_module("matplotlib.pyplot")
    rows = (len(columns) + 1) // 2
    height = 1.2 + rows * (1.0 + 0.3 * max(len(_peers(figures, column)) for column in columns))
    figure, grid = plots.subplots(rows, min(2, len(columns)), figsize=(12, height), squeeze=False, layout="constrained")
    places = [axes for row in grid for axes in row]
    for axes, column in zip(places, columns, strict=False):
        _bars(axes, column, figures, _peers(figures, column), base)
    for axes in places[len(columns) :]:
        axes.set_axis_off()
    figure.suptitle(about, fontsize=10)
    figure.savefig(path, dpi=130)
    plots.close(figure)


def _peers(figures: Figures, column: Column) -> list[str]:
    return [peer for peer, found in figures.found.items() if column.name in found]


def _bars(axes: Any, column: Column, figures: Figures, peers: Sequence[str], base: str) -> None:
    found = [figures.found[peer][column.name] for peer in peers]
    reach = [[each.median - each.low for each in found], [each.high - each.median for each in found]]
    colours = ["tab:blue" if peer.startswith(base) else "tab:gray" for peer in peers]
    axes.barh(range(len(peers)), [each.median for each in found], 0.7, xerr=reach, capsize=2, color=colours)
    for at, each in enumerate(found):
        axes.text(each.high, at, f"  {each.median:,.{column.digits}f}", va="center", fontsize=8)
    axes.set_yticks(range(len(peers)), peers, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(f"{column.title}, {column.unit}", fontsize=10)
    axes.grid(True, axis="x", alpha=0.25)
    axes.set_axisbelow(True)
