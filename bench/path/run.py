"""Starting everything, the rounds, and ending everything, whatever happens."""

from __future__ import annotations

import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.path import machine, programs
from bench.path.cases import EVENTS, PACE_US, Case
from bench.path.child import Child
from bench.path.peer import Peer, Place
from bench.path.roster import DIRECT
from bench.path.runner import LoadFailedError, Rig, Run, answers

WORKERS = 2
START_SECONDS = 60.0
SETTLE_SECONDS = 3.0  # until each has seen that both workers are well
RESUME_SECONDS = 0.2  # what it missed while it stood still


@dataclass(frozen=True)
class Plan:
    peers: Sequence[Peer]
    cases: Sequence[Case]
    rounds: int
    seconds: float
    warm: float
    work: Path


@dataclass
class Outcome:
    """`failed`: a peer's name, and why nothing is known of it."""

    runs: list[Run] = field(default_factory=list)
    failed: dict[str, list[str]] = field(default_factory=dict)


def say(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


def measure(plan: Plan) -> Outcome:
    """All rounds. Raises programs.CannotBuildError."""
    load, upstream = (programs.build(name, plan.work) for name in ("load", "upstream"))
    outcome = Outcome()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=plan.work, prefix="run-")))
        first, second = _two_cores()
        ports = stack.enter_context(_upstream(upstream, second, folder))
        rig = Rig(load, second, ports[0], folder, plan.seconds, plan.warm)
        started = {}
        for peer in plan.peers:
            say(f"starting {peer.name}")
            child, port = _start(peer, first if peer.pinned else machine.cores(), ports, folder)
            stack.callback(child.kill)
            wrong = _wait(child, port)
            if wrong:
                outcome.failed[peer.name] = [wrong, *child.last_lines()]
                say(f"{peer.name} did not start: {wrong}", *(f"\n    {line}" for line in child.last_lines()))
                child.kill()
                continue
            started[peer.name] = (peer, child, port)
        time.sleep(SETTLE_SECONDS)
        for _, child, _ in started.values():
            child.pause()
        with machine.on(second):
            _rounds(plan, rig, started, outcome)
    return outcome


def _rounds(plan: Plan, rig: Rig, started: dict[str, tuple[Peer, Child, int]], outcome: Outcome) -> None:
    for turn in range(plan.rounds):
        names = [DIRECT, *started]
        for case in plan.cases:
            for name in names if turn % 2 == 0 else reversed(names):
                say(f"round {turn + 1} of {plan.rounds}: {case.title}, {name}")
                try:
                    if name == DIRECT:
                        outcome.runs.append(rig.run(case, rig.upstream, None, name, turn))
                    else:
                        outcome.runs.append(_one(rig, case, *started[name], turn))
                except LoadFailedError as wrong:
                    outcome.failed.setdefault(name, []).append(f"round {turn + 1}, {case.title}: {wrong}")
                    say(f"{name}: {wrong}")


def _one(rig: Rig, case: Case, peer: Peer, child: Child, port: int, turn: int) -> Run:
    child.resume()
    time.sleep(RESUME_SECONDS)
    try:
        return rig.run(case, port, child, peer.name, turn)
    finally:
        child.pause()
        for name in peer.emptied:
            (child.log.parent / name).write_bytes(b"")


def _two_cores() -> tuple[list[int], list[int]]:
    """The proxies' and the load's."""
    cores = machine.cores()
    if len(cores) < 2:
        say("one core: proxies and load share it, so figures of time say little; those of CPU stand")
    return cores[:1], cores[1:2] or cores[:1]


@contextmanager
def _upstream(program: Path, core: list[int], folder: Path) -> Iterator[tuple[int, ...]]:
    command = [str(program), str(PACE_US), str(EVENTS), str(WORKERS)]
    child = Child(command, core, folder / "upstream.log", talks=True)
    try:
        assert child.process.stdout is not None
        ports = tuple(map(int, child.process.stdout.readline().split()))
        if len(ports) != WORKERS:
            raise RuntimeError(f"the upstream did not start: {' '.join(child.last_lines())}")
        yield ports
    finally:
        child.kill()


def _start(peer: Peer, cores: list[int], workers: tuple[int, ...], folder: Path) -> tuple[Child, int]:
    program = peer.find()
    assert program is not None
    own = folder / peer.name
    own.mkdir()
    port, spare = _free_ports(2)
    place = Place(port, spare, workers, own)
    return Child(peer.command(program, place), cores, own / "log", peer.environment), port


def _wait(child: Child, port: int) -> str | None:
    """Until it answers as it should; what is wrong where it never does."""
    until, wrong = time.monotonic() + START_SECONDS, None
    while time.monotonic() < until:
        if child.ended:
            return f"it ended with status {child.process.returncode}"
        wrong = answers(port)
        if wrong is None:
            return None
        time.sleep(0.2)
    return f"no good answer in {START_SECONDS:.0f} s: {wrong}"


def _free_ports(count: int) -> list[int]:
    """Held together, so that they differ."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]
