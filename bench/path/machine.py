"""The machine: which cores there are, and what a process and its children use of them. Linux only."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


@contextmanager
def on(wanted: list[int]) -> Iterator[None]:
    """Whatever is started inside runs on these cores only, with all its threads, from its first instruction."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, wanted)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def tree(pid: int) -> list[int]:
    """The process and all that descend from it. One that ends meanwhile is left out."""
    found = [pid]
    for parent in found:
        for line in _read(f"{parent}/task/*/children"):
            found += map(int, line.split())
    return found


@dataclass(frozen=True)
class Used:
    """Seconds that threads ran, and that they were ready to run while their core did something else."""

    ran: float
    waited: float

    def since(self, before: Used) -> Used:
        return Used(self.ran - before.ran, self.waited - before.waited)


def used(pids: list[int]) -> Used:
    """By all threads of these together, from the scheduler's own count in nanoseconds."""
    found = [line.split() for pid in pids for line in _read(f"{pid}/task/*/schedstat")]
    return Used(sum(int(each[0]) for each in found) / 1e9, sum(int(each[1]) for each in found) / 1e9)


def resident_bytes(pids: list[int]) -> int:
    """Pages that several of them share are counted for each."""
    page = os.sysconf("SC_PAGE_SIZE")
    return sum(int(line.split()[1]) * page for pid in pids for line in _read(f"{pid}/statm"))


def raise_descriptors() -> None:
    """As many as there may be, for children too: a connection takes two of a proxy, and the usual limit is 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def model_name() -> str:
    lines = [line for text in _read("cpuinfo") for line in text.splitlines() if line.startswith("model name")]
    return lines[0].partition(":")[2].strip() if lines else "unknown processor"


def _read(pattern: str) -> Iterator[str]:
    for path in PROC.glob(pattern):
        try:
            yield path.read_text()
        except OSError:
            continue  # it has ended
