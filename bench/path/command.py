"""The command: what is asked for, what of it is here, and what is printed."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from bench.path import machine, picture, report
from bench.path.cases import BY_NAME as CASES_BY_NAME
from bench.path.cases import CASES
from bench.path.figures import gather
from bench.path.peer import ROOT, Peer
from bench.path.programs import CannotBuildError
from bench.path.roster import BASE, BY_NAME, ROSTER
from bench.path.run import Outcome, Plan, measure, say

WORK = ROOT / ".cache" / "bench-path"
INSTEAD = "`python bench/cpu.py` measures the gateway alone, with a load in Python"
ENDING = (signal.SIGINT, signal.SIGTERM)

Named = TypeVar("Named")


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        prog="python -m bench.path",
        description="CPU, latency and memory of the gateway, beside every other proxy that is found on this machine.",
    )
    flags.add_argument("--rounds", type=int, default=5, help="each case with each proxy so often (5)")
    flags.add_argument("--seconds", type=float, default=2.0, help="measured each time, of streams twice that (2)")
    flags.add_argument("--warm", type=float, default=0.5, help="seconds of load before that (0.5)")
    flags.add_argument("--only", metavar="NAMES", help=f"with commas, of {', '.join(BY_NAME)}")
    flags.add_argument("--cases", metavar="NAMES", help=f"with commas, of {', '.join(CASES_BY_NAME)}")
    flags.add_argument("--work", type=Path, default=WORK, help="a folder for programs and logs (.cache/bench-path)")
    flags.add_argument("--plot", type=Path, metavar="FILE", help="a picture: .png, .svg or .pdf")
    flags.add_argument("--json", action="store_true")
    return flags


def main(arguments: list[str] | None = None) -> int:
    flags = parser()
    asked = flags.parse_args(arguments)
    if sys.platform != "linux":
        flags.error(f"needs Linux: epoll, /proc, and processes that are bound to cores. {INSTEAD}")
    if asked.rounds < 1 or asked.seconds <= 0 or asked.warm < 0:
        flags.error("--rounds and --seconds are above zero, --warm is not below it")
    faults = picture.faults(asked.plot) if asked.plot else []
    if faults:
        flags.error("; ".join(faults))
    cases = named(flags, "--cases", asked.cases, CASES_BY_NAME) or list(CASES)
    peers, missing = divided(named(flags, "--only", asked.only, BY_NAME) or list(ROSTER))
    if not peers:
        flags.error("--only: nothing of it is here")
    machine.raise_descriptors()
    asked.work.mkdir(parents=True, exist_ok=True)
    outcome = measured(Plan(peers, cases, asked.rounds, asked.seconds, asked.warm, asked.work.resolve()))
    if isinstance(outcome, int):
        return outcome
    base = BASE if any(peer.name == BASE for peer in peers) else peers[0].name
    about, figures = report.about(asked.rounds, asked.seconds), gather(outcome.runs, base)
    found = report.Report(about, base, figures, outcome, missing)
    print(json.dumps(report.as_json(found), indent=2) if asked.json else report.as_text(found))
    if asked.plot:
        picture.draw(asked.plot, about, figures, base)
    return 1 if figures.troubles or outcome.failed else 0


def measured(plan: Plan) -> Outcome | int:
    """What came of it, or the exit status where nothing did."""
    for number in ENDING:
        signal.signal(number, _end)
    try:
        return measure(plan)
    except CannotBuildError as wrong:
        say(f"{wrong}. {INSTEAD}")
        return 1
    except KeyboardInterrupt:
        say("stopped; nothing is left running")
        return 130


def _end(*_: object) -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)  # once is enough: what is started now has to be ended
    raise KeyboardInterrupt


def named(flags: argparse.ArgumentParser, flag: str, said: str | None, known: Mapping[str, Named]) -> list[Named]:
    """What the flag names; ends the program where one is not known."""
    names = said.split(",") if said else []
    unknown = [name for name in names if name not in known]
    if unknown:
        flags.error(f"{flag}: there is no {', '.join(unknown)}; known are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


def divided(wanted: list[Peer]) -> tuple[list[Peer], list[Peer]]:
    """Those that are here, and those that are not, each of which is told at once."""
    here = [peer for peer in wanted if peer.find() is not None]
    missing = [peer for peer in wanted if peer not in here]
    for peer in missing:
        say(f"{peer.name} is not here and is left out: {peer.get}")
    return here, missing
