"""A picture of a measurement: speed-ups by batch with their spread, and tokens a step. Needs the extra `plot`."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from os import W_OK, access
from pathlib import Path
from typing import Any

from backends.bench_decoding.measured import Measured, Setting

KINDS = (".png", ".svg", ".pdf")


def faults(path: Path) -> list[str]:
    """What would go wrong, said before the work is done."""
    found = []
    if find_spec("matplotlib") is None:
        found.append("--plot needs matplotlib: pip install 'prefix-router[plot]'")
    if path.suffix.lower() not in KINDS:
        found.append(f"--plot {path}: expected a file name that ends in {', '.join(KINDS)}")
    if not path.parent.is_dir():
        found.append(f"--plot {path}: there is no folder {path.parent}")
    elif not access(path if path.exists() else path.parent, W_OK):
        found.append(f"--plot {path}: cannot be written")
    return found


def draw(path: Path, setting: Setting, measured: Sequence[Measured]) -> None:
    import_module("matplotlib").use("Agg")
    plots = import_module("matplotlib.pyplot")
    sets = list(dict.fromkeys(one.of for one in measured))
    modes = list(dict.fromkeys(one.mode for one in measured))
    size = (max(6.0, 5.0 * len(sets)), 7.0)
    figure, grid = plots.subplots(2, len(sets), figsize=size, squeeze=False, sharey="row", layout="constrained")
    colours = {mode: plots.get_cmap("tab10")(at % 10) for at, mode in enumerate(modes)}
    for column, of in enumerate(sets):
        lines = [one for one in measured if one.of == of]
        _speed_ups(grid[0][column], lines, colours)
        _tokens(grid[1][column], lines, colours)
        grid[0][column].set_title(of)
    grid[0][0].set_ylabel(f"times plain, {'CPU' if setting.by_cpu else 'wall'} seconds a token")
    grid[1][0].set_ylabel("tokens a row and step")
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    figure.suptitle(setting.line.replace("; ", "\n"), fontsize=10)
    figure.savefig(path, dpi=130)
    plots.close(figure)


def _speed_ups(axes: Any, lines: Sequence[Measured], colours: dict[str, Any]) -> None:
    for mode, places, found in _bars(lines, colours):
        spreads = [one.figures.speed_up for one in found]
        reach = [[one.median - one.low for one in spreads], [one.high - one.median for one in spreads]]
        width, heights = 0.8 / len(colours), [one.median for one in spreads]
        axes.bar(places, heights, width, yerr=reach, capsize=2, color=colours[mode], label=mode)
    axes.axhline(1.0, color="black", linewidth=0.8)
    _labelled(axes, lines)


def _tokens(axes: Any, lines: Sequence[Measured], colours: dict[str, Any]) -> None:
    for mode, places, found in _bars(lines, colours):
        axes.bar(places, [one.figures.tokens_a_row_step for one in found], 0.8 / len(colours), color=colours[mode])
    _labelled(axes, lines)
    axes.set_xlabel("rows in a batch")


def _bars(lines: Sequence[Measured], colours: dict[str, Any]) -> list[tuple[str, list[float], list[Measured]]]:
    """By mode, where its bars stand and what they show: a group for each batch size."""
    batches = list(dict.fromkeys(one.batch for one in lines))
    groups = []
    for at, mode in enumerate(colours):
        found = [one for one in lines if one.mode == mode]
        shift = 0.8 * (at + 0.5) / len(colours) - 0.4
        groups.append((mode, [batches.index(one.batch) + shift for one in found], found))
    return groups


def _labelled(axes: Any, lines: Sequence[Measured]) -> None:
    batches = list(dict.fromkeys(one.batch for one in lines))
    axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
    axes.grid(True, axis="y", alpha=0.25)
    axes.set_axisbelow(True)
