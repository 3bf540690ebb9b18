"""What is shown: progress while it runs, then tables for people or one JSON object."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from backends.train_heads.run import Made

PIPE_WIDTH = 120  # columns, where no terminal says
A_LINE_EVERY = 30.0  # seconds, where there is no terminal for a bar


class Watch:
    """A bar on standard error while that is a terminal, else a line now and then."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console or Console(stderr=True), clock

    def say(self, line: str) -> None:
        self._console.print(f"prefix-worker train-heads: {line}", markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def stage(self, label: str, total: int) -> Iterator[Callable[[int, str], None]]:
        if not self._console.is_terminal:
            yield self._lines(label, total)
            return
        columns = (TextColumn("{task.description:>8}"), BarColumn(30), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, TextColumn("{task.fields[note]}"), console=self._console, transient=True) as bar:
            task = bar.add_task(label, total=total, note="")
            yield lambda done, note: bar.update(task, completed=done, note=note)

    def _lines(self, label: str, total: int) -> Callable[[int, str], None]:
        last = self._clock()

        def told(done: int, note: str) -> None:
            nonlocal last
            if done == total or self._clock() - last >= A_LINE_EVERY:
                last = self._clock()
                self.say(f"{label} {done} of {total}, {note}")

        return told


def show(made: Made, console: Console | None = None) -> None:
    console = console or Console(soft_wrap=True, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print("Held-out answers: the true token among a head's first 1 / 3 / 5 guesses", style="bold")
    depth = max(len(each.accuracy) for each in made.sets.values())
    console.print(_table(
        ["positions", *(f"head {number}" for number in range(1, depth + 1))],
        {kind: [f"{each.positions:,}", *("/".join(f"{share:.2f}" for share in row) for row in each.accuracy)]
         for kind, each in made.sets.items()},
    ))  # fmt: skip
    console.print("\nTokens a step, by nodes of a tree that is verified whole", style="bold")
    sizes = next(iter(made.sets.values())).expected
    console.print(_table(
        [str(size) for size in sizes],
        {kind: [f"{tokens:.2f}" for tokens in each.expected.values()] for kind, each in made.sets.items()},
    ))  # fmt: skip
    size = made.path.stat().st_size / 1e6
    console.print(f"\n{made.path}: {size:.1f} MB, trained on {made.positions:,} positions")


def _table(heads: list[str], rows: dict[str, list[str]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("set", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def print_json(made: Made) -> None:
    sys.stdout.write(json.dumps(as_json(made), indent=2) + "\n")


def as_json(made: Made) -> dict[str, Any]:
    """Shares are 0 to 1; `expected_tokens` has tokens a step by the tree's nodes."""
    return {
        "out": str(made.path),
        "bytes": made.path.stat().st_size,
        "kind": made.heads.kind,
        "taps": list(made.heads.taps),
        "vocabulary": len(made.heads.ids),
        "positions": made.positions,
        "shards": {"used": made.shards[0], "planned": made.shards[1]},
        "about": made.heads.about,
        "sets": {
            kind: {
                "positions": each.positions,
                "accuracy": each.accuracy,
                "expected_tokens": {str(size): tokens for size, tokens in each.expected.items()},
            }
            for kind, each in made.sets.items()
        },
    }
