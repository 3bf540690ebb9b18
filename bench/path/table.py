"""The tables: a row for each proxy, medians of the rounds, and ratios to the gateway with their range."""

from __future__ import annotations

from collections.abc import Sequence

from bench.path.figures import COLUMNS, Column, Figures, Spread

WIDTH = 11


def table(figures: Figures, base: str) -> str:
    columns = [column for column in COLUMNS if any(column.name in each for each in figures.found.values())]
    lines = _head(columns)
    for peer, found in figures.found.items():
        lines.append(f"{peer:18}" + "".join(_cell(column, found.get(column.name)) for column in columns))
    compared = [column for column in columns if column.compared]
    if figures.times and compared:
        rounds = max(each.rounds for row in figures.times.values() for each in row.values())
        lines += ["", f"times what {base} takes, in the same round: median of {rounds} (smallest-largest)"]
        lines.append(f"{'':18}" + "".join(f"{column.title:>20}" for column in compared))
        lines.append(f"{'':18}" + "".join(f"{column.unit:>20}" for column in compared))
        for peer, times in figures.times.items():
            lines.append(f"{peer:18}" + "".join(f"{_ratio(times.get(column.name)):>20}" for column in compared))
    return "\n".join(lines)


def _head(columns: Sequence[Column]) -> list[str]:
    titles = "".join(f"{column.title:>{WIDTH}}" for column in columns)
    units = "".join(f"{column.unit:>{WIDTH}}" for column in columns)
    return [f"{'':18}{titles}", f"{'':18}{units}"]


def _cell(column: Column, value: Spread | None) -> str:
    return f"{'-' if value is None else f'{value.median:,.{column.digits}f}':>{WIDTH}}"


def _ratio(value: Spread | None) -> str:
    return "-" if value is None else f"{value.median:.2f} ({value.low:.2f}-{value.high:.2f})"
