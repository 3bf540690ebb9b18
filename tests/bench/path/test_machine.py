"""Cores, and what processes use."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from bench.path import machine
from tests.support.processes import until

Start = Callable[[str], int]


@pytest.fixture
def start() -> Iterator[Start]:
    """A shell command, by its process id; ended afterwards with whatever it started."""
    started: list[subprocess.Popen[bytes]] = []

    def run(command: str) -> int:
        started.append(subprocess.Popen(["sh", "-c", command]))
        return started[-1].pid

    yield run
    for each in started:
        for pid in machine.tree(each.pid):
            os.kill(pid, 9)
        each.wait()


def test_a_tree_has_the_children_of_children(start: Start) -> None:
    pid = start("sh -c 'sleep 60; true'; true")
    until(lambda: len(machine.tree(pid)) == 3)


def test_what_a_busy_process_runs_is_counted_with_its_children(start: Start) -> None:
    pid = start(f"{sys.executable} -c 'while True: pass'; true")
    until(lambda: machine.used(machine.tree(pid)).ran > 0.3)
    assert machine.used([pid]).ran < machine.used(machine.tree(pid)).ran


def test_two_looks_give_what_was_used_between_them() -> None:
    assert machine.Used(5.0, 2.0).since(machine.Used(3.0, 1.5)) == machine.Used(2.0, 0.5)


def test_one_that_has_ended_has_used_nothing_that_can_be_seen() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert machine.used([process.pid]) == machine.Used(0.0, 0.0)
    assert machine.resident_bytes([process.pid]) == 0


def test_resident_memory_is_in_bytes() -> None:
    assert 5_000_000 < machine.resident_bytes([os.getpid()]) < 50_000_000_000


def test_what_is_started_on_a_core_stays_there_and_the_others_come_back(start: Start) -> None:
    before = machine.cores()
    with machine.on(before[:1]):
        pid = start("sleep 60")
    assert machine.cores() == before
    assert os.sched_getaffinity(pid) == set(before[:1])
