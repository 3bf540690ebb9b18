"""What a measurement shows: progress while it runs, then tables for people or one JSON object."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from backends.bench_decoding.figures import Figures, Spread
from backends.bench_decoding.first_token import FirstToken
from backends.bench_decoding.measured import Measured, Setting

LEAST_WIDTH = 120  # columns; a table that is cut says nothing
LEGEND = """
speed-up: plain's {clock} seconds a token over the mode's, median of the rounds and their least and most; plain's own is
each of its runs against the one before, which is what the machine's unrest is worth; full: only steps without an empty
seat; tokens: that a row got from a step; nodes: that a step verified over all rows; drafted: share of steps that did;
differ: answers that are not as plain decoding said them, and how near the model's two best logits lay at most there"""


class Watch:
    """A bar on standard error while that is a terminal, lines otherwise. It is drawn between runs only: no thread of
    its own takes CPU time while one is measured."""

    def __init__(self, total: int) -> None:
        console = Console(stderr=True, markup=False, highlight=False)
        columns = (TextColumn("{task.description:<40}"), BarColumn(30), TextColumn("{task.completed}/{task.total}"))
        self._bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True, auto_refresh=False)
        self._console, self._task = console, self._bar.add_task("", total=total)

    @contextmanager
    def shown(self) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        with self._bar:
            yield

    def tell(self, line: str) -> None:
        """The next part begins."""
        if self._console.is_terminal:
            self._bar.update(self._task, advance=1, description=line, refresh=True)
        else:
            self._console.print(line, soft_wrap=True)

    def note(self, one: Measured) -> None:
        """A figure is there, hours before the others may be."""
        spread, counted = one.figures.speed_up, _differ(one.figures)
        line = f"{one.of}, batch {one.batch}: {one.mode} {spread.median:.2f} ({spread.low:.2f}..{spread.high:.2f})"
        self._console.print(f"{line}, {counted} differ", soft_wrap=True)


def show(setting: Setting, measured: Sequence[Measured], first: FirstToken | None) -> None:
    console = Console(soft_wrap=True, markup=False, emoji=False, highlight=False)
    console.width = max(console.width, LEAST_WIDTH) if console.is_terminal else LEAST_WIDTH
    console.print(setting.line, style="bold")
    for of, lines in groupby(measured, lambda one: one.of):
        console.print(f"\n{of}\n")
        console.print(_table(list(lines)))
    if measured:
        console.print(LEGEND.format(clock="CPU" if setting.by_cpu else "wall"), style="dim")
    if first is not None:
        console.print(f"\n{first_token_line(first)}")


def _table(measured: Sequence[Measured]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("batch", justify="right")
    table.add_column("mode", no_wrap=True)
    heads = ("speed-up", "least..most", "wall", "full", "tokens", "nodes", "drafted", "ms/token CPU", "wall", "differ")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    before = None
    for one in measured:
        table.add_row("" if one.batch == before else str(one.batch), one.mode, *_cells(one.figures))
        before = one.batch
    return table


def _cells(found: Figures) -> list[str]:
    spread = found.speed_up
    return [
        f"{spread.median:.2f}",
        f"{spread.low:.2f}..{spread.high:.2f}",
        f"{found.wall.median:.2f}",
        "n/a" if found.full_speed_up is None else f"{found.full_speed_up.median:.2f}",
        f"{found.tokens_a_row_step:.2f}",
        f"{found.nodes_a_step:.1f}",
        f"{found.drafted:.0%}",
        "n/a" if found.cpu_a_token is None else f"{1000 * found.cpu_a_token:.2f}",
        f"{1000 * found.wall_a_token:.2f}",
        _differ(found),
    ]


def _differ(found: Figures) -> str:
    count = len(found.differing)
    if not count:
        return f"0/{found.rows}"
    return f"{count}/{found.rows} ({max(one.margin for one in found.differing):.1g})"


def first_token_line(found: FirstToken) -> str:
    clock = "CPU" if found.by_cpu else "wall"
    return (
        f"first token of {found.prefix} + {found.fresh} tokens, {clock} ms: cold {1000 * found.cold.median:.1f}, warm "
        f"{1000 * found.warm.median:.1f} ({found.cached} tokens cached), ratio {found.ratio.median:.1f} "
        f"({found.ratio.low:.1f}..{found.ratio.high:.1f}); the same token in {found.same} of {len(found.cold.rounds)}"
    )


def print_json(setting: Setting, measured: Sequence[Measured], first: FirstToken | None) -> None:
    sys.stdout.write(json.dumps(as_object(setting, measured, first), indent=2) + "\n")


def as_object(setting: Setting, measured: Sequence[Measured], first: FirstToken | None) -> dict[str, Any]:
    return {
        **setting.said,
        "measured": [
            {"set": one.of, "batch": one.batch, "mode": one.mode, **_figures(one.figures)} for one in measured
        ],
        "first_token": None if first is None else _first_token(first),
    }


def _figures(found: Figures) -> Mapping[str, Any]:
    return {
        "speed_up": _spread(found.speed_up),
        "speed_up_cpu": _spread(found.cpu),
        "speed_up_wall": _spread(found.wall),
        "speed_up_full": _spread(found.full_speed_up),
        "tokens_a_row_step": round(found.tokens_a_row_step, 4),
        "nodes_a_step": round(found.nodes_a_step, 3),
        "drafted": round(found.drafted, 4),
        "full_share": round(found.full_share, 4),
        "cpu_seconds_a_token": found.cpu_a_token,
        "wall_seconds_a_token": found.wall_a_token,
        "rows": found.rows,
        "rows_differing": len(found.differing),
        "differing": [{"prompt": one.prompt, "at": one.at, "margin": one.margin} for one in found.differing],
    }


def _first_token(found: FirstToken) -> Mapping[str, Any]:
    return {
        "prefix": found.prefix, "fresh": found.fresh, "cached": found.cached,
        "clock": "cpu" if found.by_cpu else "wall", "cold_seconds": _spread(found.cold),
        "warm_seconds": _spread(found.warm), "ratio": _spread(found.ratio), "same_token": found.same,
    }  # fmt: skip


def _spread(found: Spread | None) -> dict[str, Any] | None:
    if found is None:
        return None
    rounds = [round(value, 5) for value in found.rounds]
    return {"median": round(found.median, 5), "min": min(rounds), "max": max(rounds), "rounds": rounds}
