"""What is printed: the tables with all that one must know to read them, or the same as JSON."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.path import machine
from bench.path.cases import EVENTS, PACE_US
from bench.path.figures import Figures
from bench.path.peer import Peer
from bench.path.roster import BY_NAME
from bench.path.run import Outcome
from bench.path.table import table

BUSY = 0.05  # of the time that others had the core, from where times say little

LEGEND = f"""\
CPU us: of the proxy with its children, a request or an event. All but those on all cores share one core; the upstream
and the load have another. 64 connections where nothing else is said; a stream has {EVENTS} events, one every
{PACE_US / 1000:g} ms. added: the median at one connection, less what the upstream alone takes."""


@dataclass(frozen=True)
class Report:
    about: str
    base: str
    figures: Figures
    outcome: Outcome
    missing: Sequence[Peer]


def about(rounds: int, seconds: float) -> str:
    return (
        f"{machine.model_name()}, {len(machine.cores())} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}; medians of {rounds} rounds of {seconds:g} s"
    )


def as_text(found: Report) -> str:
    parts = [found.about, table(found.figures, found.base), "\n".join(_legend(found))]
    trouble = [*found.figures.troubles, *_failed(found)]
    if trouble:
        parts.append("\n".join(["not sound:", *(f"    {line}" for line in trouble)]))
    return "\n\n".join(parts)


def as_json(found: Report) -> dict[str, Any]:
    return {
        "about": found.about,
        "base": found.base,
        **asdict(found.figures),
        "missing": {peer.name: peer.get for peer in found.missing},
        "failed": found.outcome.failed,
        "runs": [asdict(run) for run in found.outcome.runs],
    }


def _legend(found: Report) -> list[str]:
    lines = [LEGEND]
    waited = found.figures.waited
    if waited is not None:
        lines.append(
            f"{found.base} waited {waited:.1%} of the time for its core, which others had"
            + (": trust CPU and ratios, not times." if waited > BUSY else ".")
        )
    lines += [f"{name:18}{BY_NAME[name].what}" for name in found.figures.found if name in BY_NAME]
    lines += [f"{peer.name:18}not here: {peer.get}" for peer in found.missing]
    return lines


def _failed(found: Report) -> list[str]:
    return [line for name, why in found.outcome.failed.items() for line in (f"{name} failed:", *why)]
