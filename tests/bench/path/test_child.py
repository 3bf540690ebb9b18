"""A process and its children: paused, resumed, ended together."""

from pathlib import Path

import pytest

from bench.path import machine
from bench.path.child import Child
from tests.support.processes import until

TWO = ["sh", "-c", "sleep 60 & sleep 60; true"]


def child(command: list[str], folder: Path) -> Child:
    return Child(command, machine.cores(), folder / "log")


def both_sleep(one: Child) -> bool:
    """Before that, a shell that waits for its child's first step cannot be paused."""
    return [Path(f"/proc/{pid}/comm").read_text().strip() for pid in one.pids[1:]] == ["sleep", "sleep"]


def state(pid: int) -> str:
    """As the kernel has it: T for a stopped one; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_all_of_them_are_paused_and_resumed(tmp_path: Path) -> None:
    one = child(TWO, tmp_path)
    try:
        until(lambda: both_sleep(one))
        one.pause()
        until(lambda: {state(pid) for pid in one.pids} == {"T"})
        one.resume()
        until(lambda: "T" not in {state(pid) for pid in one.pids})
    finally:
        one.kill()


def test_all_of_them_end_even_when_they_are_paused(tmp_path: Path) -> None:
    one = child(TWO, tmp_path)
    until(lambda: both_sleep(one))
    pids = one.pids
    one.pause()
    one.kill()
    assert one.ended
    until(lambda: all(state(pid) in ("", "Z") for pid in pids))


def test_children_whose_parent_has_ended_end_too(tmp_path: Path) -> None:
    one = child(["sh", "-c", "sleep 60 & echo $!"], tmp_path)
    until(lambda: one.ended)
    (orphan,) = map(int, one.last_lines())
    one.kill()
    until(lambda: state(orphan) in ("", "Z"))


def test_both_outputs_are_in_the_log_and_its_end_can_be_read(tmp_path: Path) -> None:
    one = child(["sh", "-c", "for at in $(seq 30); do echo $at; done; echo wrong >&2"], tmp_path)
    until(lambda: one.ended)
    assert one.last_lines()[-2:] == ["30", "wrong"]
    assert len(one.last_lines()) == 12
    one.kill()


def test_settings_of_whoever_measures_do_not_reach_the_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFIX_ROUTER_ROUTING__POLICY", "random")
    monkeypatch.setenv("SOMETHING_ELSE", "stays")
    one = Child(["env"], machine.cores(), tmp_path / "log", {"PREFIX_ROUTER_LOG__ACCESS": "none"})
    until(lambda: one.ended)
    said = one.log.read_text().splitlines()
    assert [line for line in said if line.startswith("PREFIX_ROUTER_")] == ["PREFIX_ROUTER_LOG__ACCESS=none"]
    assert "SOMETHING_ELSE=stays" in said
    one.kill()
