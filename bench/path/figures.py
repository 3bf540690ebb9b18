"""From runs to figures: a median with its range for each column, and ratios taken within a round.

A machine that does other things too slows all that run at one time alike. So two proxies are compared round by round,
and what is told is the median of those ratios, with the smallest and the largest.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.path.roster import DIRECT
from bench.path.runner import Run

ByRound = dict[int, float]


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float
    rounds: int


@dataclass(frozen=True)
class Column:
    """`value`: of one run, None where it has none. `added`: less what the upstream alone takes in the same round.
    `compared`: whether a ratio of it says something."""

    name: str
    title: str
    unit: str
    case: str
    value: Callable[[Run], float | None]
    digits: int = 1
    added: bool = False
    compared: bool = False


def _cpu(name: str, case: str, title: str) -> Column:
    return Column(name, title, "CPU us", case, lambda run: run.cpu_us, compared=True)


def _ms(run_us: Callable[[Run], float]) -> Callable[[Run], float]:
    return lambda run: run_us(run) / 1000


COLUMNS = (
    _cpu("cpu_json_2k", "json-2k", "JSON 2K"),
    _cpu("cpu_json_32k", "json-32k", "JSON 32K"),
    _cpu("cpu_json_256k", "json-256k", "JSON 256K"),
    _cpu("cpu_sse", "sse", "SSE event"),
    Column("requests", "JSON 2K", "req/s", "json-2k", lambda run: run.requests_a_second, 0),
    Column("p50_c64", "p50 at 64", "ms", "json-2k", _ms(lambda run: run.p50_us), 2),
    Column("p99_c64", "p99 at 64", "ms", "json-2k", _ms(lambda run: run.p99_us), 2),
    Column("p50_c512", "p50 at 512", "ms", "c512", _ms(lambda run: run.p50_us), 2),
    Column("p99_c512", "p99 at 512", "ms", "c512", _ms(lambda run: run.p99_us), 2, compared=True),
    Column("added", "added at 1", "us", "one", lambda run: run.p50_us, 0, added=True, compared=True),
    Column("resident", "resident", "MB", "json-2k", lambda run: run.resident / 1e6 if run.resident else None, 0),
)


def spread(values: Iterable[float]) -> Spread | None:
    found = list(values)
    return Spread(statistics.median(found), min(found), max(found), len(found)) if found else None


def by_round(runs: Sequence[Run], peer: str, column: Column) -> ByRound:
    """The column's value in each round that has one."""
    alone = {run.round: run.p50_us for run in runs if run.peer == DIRECT and run.case == column.case}
    found: ByRound = {}
    for run in runs:
        value = column.value(run) if run.peer == peer and run.case == column.case else None
        if value is None or (column.added and (peer == DIRECT or run.round not in alone)):
            continue
        found[run.round] = value - alone[run.round] if column.added else value
    return found


def ratios(above: Mapping[int, float], below: Mapping[int, float]) -> list[float]:
    """Of the rounds that both have; a divisor that is not above zero says nothing."""
    return [above[turn] / below[turn] for turn in sorted(above) if below.get(turn, 0) > 0]


@dataclass(frozen=True)
class Figures:
    """By peer and column. `times`: how many times the base's. `waited`: see `waiting`."""

    found: dict[str, dict[str, Spread]]
    times: dict[str, dict[str, Spread]]
    troubles: list[str]
    waited: float | None


def gather(runs: Sequence[Run], base: str) -> Figures:
    peers = list(dict.fromkeys(run.peer for run in runs))
    values = {peer: {column.name: by_round(runs, peer, column) for column in COLUMNS} for peer in peers}
    found = {peer: _spreads({name: each.values() for name, each in values[peer].items()}) for peer in peers}
    times = {
        peer: _spreads({
            column.name: ratios(values[peer][column.name], values[base][column.name])
            for column in COLUMNS if column.compared
        })
        for peer in peers if base in values and peer not in (base, DIRECT)
    }  # fmt: skip
    return Figures(found, times, troubles(runs), waiting(runs, base))


def _spreads(values: Mapping[str, Iterable[float]]) -> dict[str, Spread]:
    return {name: each for name, several in values.items() if (each := spread(several)) is not None}


def waiting(runs: Sequence[Run], base: str) -> float | None:
    """How much of the time the base, which has one thread that counts, had to wait for its core: the work of others."""
    found = [run.waited for run in runs if run.peer == base and run.waited is not None]
    return statistics.median(found) if found else None


def troubles(runs: Sequence[Run]) -> list[str]:
    """A line for each run whose figures are not those of sound answers."""
    lines = []
    for run in runs:
        kinds = [f"{count} {kind.replace('_', ' ')}" for kind, count in run.errors.items()]
        if run.uncounted:
            kinds.append(f"{run.uncounted:+d} requests at the upstream")
        if not run.requests and not run.events:
            kinds.append("no answers")
        if kinds:
            lines.append(f"{run.peer}, {run.case}, round {run.round + 1}: {', '.join(kinds)}")
    return lines
