"""What the tests of the benchmark share: runs as they would have been measured, and the two programs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.path import programs
from bench.path.runner import Run

Made = Callable[..., Run]


@pytest.fixture
def run() -> Made:
    """A sound run; what is given is said instead."""

    def made(peer: str = "ours", case: str = "json-2k", turn: int = 0, **said: Any) -> Run:
        usual: dict[str, Any] = {
            "requests": 1000, "events": 0, "seconds": 2.0, "cpu_us": 50.0, "cpu_share": 0.9, "waited": 0.0,
            "p50_us": 400.0, "p90_us": 600.0, "p99_us": 900.0, "max_us": 2000.0, "resident": 50_000_000, "errors": {},
            "reconnects": 0, "uncounted": 0,
        }  # fmt: skip
        return Run(peer=peer, case=case, round=turn, **(usual | said))

    return made


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A program by its name, built once."""
    folder = tmp_path_factory.mktemp("programs")
    return lambda name: programs.build(name, folder)
