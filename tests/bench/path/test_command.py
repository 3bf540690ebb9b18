"""What is asked for, and what is refused."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.path import command, programs
from bench.path.peer import ROOT, Peer
from bench.path.roster import BY_NAME, ROSTER
from bench.path.run import Outcome, Plan
from tests.bench.path.conftest import Made
from tests.support.processes import until


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, run: Made) -> list[Plan]:
    """The plans that would have been measured; all that is measured is one run of each peer in each case."""
    plans: list[Plan] = []

    def measured(plan: Plan) -> Outcome:
        plans.append(plan)
        return Outcome([run(peer.name, case.name) for peer in plan.peers for case in plan.cases])

    monkeypatch.setattr(command, "measured", measured)
    monkeypatch.setattr(command.machine, "raise_descriptors", lambda: None)
    return plans


def test_by_default_all_that_is_here_is_measured_in_every_case_five_times(asked: list[Plan], tmp_path: Path) -> None:
    assert command.main(["--work", str(tmp_path)]) == 0
    (plan,) = asked
    assert list(plan.peers) == [peer for peer in ROSTER if peer.find() is not None]
    assert [case.name for case in plan.cases] == ["json-2k", "json-32k", "json-256k", "sse", "one", "c512"]
    assert (plan.rounds, plan.seconds) == (5, 2.0)


def test_peers_and_cases_can_be_chosen(asked: list[Plan], tmp_path: Path) -> None:
    command.main(["--work", str(tmp_path), "--only", "ours-log,ours", "--cases", "sse,one"])
    (plan,) = asked
    assert [peer.name for peer in plan.peers] == ["ours-log", "ours"]
    assert [case.name for case in plan.cases] == ["sse", "one"]


def test_json_is_all_that_is_printed(asked: list[Plan], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["--work", str(tmp_path), "--only", "ours", "--json"])
    assert json.loads(capsys.readouterr().out)["base"] == "ours"
    assert len(asked) == 1


def test_a_picture_is_drawn_where_it_is_asked_for(asked: list[Plan], tmp_path: Path) -> None:
    command.main(["--work", str(tmp_path), "--only", "ours", "--plot", str(tmp_path / "cost.png")])
    assert (tmp_path / "cost.png").stat().st_size > 1000
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--only", "ours,nobody"], "--only: there is no nobody; known are ours, "),
        (["--cases", "json"], "--cases: there is no json; known are json-2k, "),
        (["--rounds", "0"], "--rounds and --seconds are above zero"),
        (["--plot", "cost.txt"], "expected a file name that ends in .png"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(
    flags: list[str], said: str, asked: list[Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(flags)
    assert said in capsys.readouterr().err
    assert asked == []


def test_another_system_is_refused_with_what_to_do_instead(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit):
        command.main([])
    assert "needs Linux" in capsys.readouterr().err


def test_who_is_not_here_is_named_at_once_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    missing = Peer("other", "another", "apt install other", lambda: None, lambda program, place: [program])
    here, left_out = command.divided([BY_NAME["ours"], missing])
    assert [peer.name for peer in here] == ["ours"]
    assert left_out == [missing]
    assert "other is not here and is left out: apt install other" in capsys.readouterr().err


def test_without_a_compiler_it_is_said_what_else_measures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(plan: Plan) -> Any:
        raise programs.CannotBuildError("no compiler")

    monkeypatch.setattr(command, "measure", none)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    assert command.measured(Plan([], [], 1, 1.0, 0.0, tmp_path)) == 1
    assert "no compiler. `python bench/cpu.py` measures the gateway alone" in capsys.readouterr().err


@pytest.mark.system("gcc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_running_after_an_interruption(how: signal.Signals, tmp_path: Path) -> None:
    flags = ["--only", "ours", "--cases", "json-2k", "--seconds", "100", "--work", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.path", *flags],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as bench:
        until(lambda: any("load-" in line for line in commands_in(tmp_path)), seconds=90)
        bench.send_signal(how)
        assert bench.stderr
        said = bench.stderr.read()
    assert bench.returncode == 130
    assert "stopped; nothing is left running" in said
    until(lambda: commands_in(tmp_path) == [])


def commands_in(folder: Path) -> list[str]:
    """The command lines of all processes that stand in the folder or below it."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and Path(os.readlink(process / "cwd")).is_relative_to(folder):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found
