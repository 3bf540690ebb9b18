"""What all tests share: real programs are used where they are found, and Hypothesis repeats itself under CI."""

import os
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

UNDER_CI = os.environ.get("CI") == "true"

settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if UNDER_CI else "here")


def missing_program(item: pytest.Item) -> str | None:
    """The first program this test is marked with and the system lacks."""
    named = (program for mark in item.iter_markers("system") for program in mark.args)
    return next((program for program in named if shutil.which(program) is None), None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    program = missing_program(item)
    if program is None:
        return
    if UNDER_CI:
        pytest.fail(f"needs {program}, and under CI every program must be there", pytrace=False)
    pytest.skip(f"needs {program}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """One closing line names the programs whose tests were left out."""
    yield
    reasons = {str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])}
    programs = sorted(reason.split("needs ", 1)[1] for reason in reasons if "needs " in reason)
    if programs:
        terminalreporter.write_line(f"left out, as this machine has no {', '.join(programs)}", yellow=True)
