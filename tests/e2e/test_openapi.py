"""Every described route, driven from its description by schemathesis, which also judges every answer by it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import gateway, mock_workers

EXAMPLES = os.environ.get("OPENAPI_EXAMPLES", "25")  # a route and phase
UNFIT = (
    "positive_data_acceptance",  # whether a URL or a path is fit is more than a schema says
    "missing_required_header",  # there is none
)


@pytest.mark.parametrize("seed", ["1", "2"])
def test_every_answer_is_as_the_description_says_and_none_is_a_fault_of_the_gateway(seed: str, tmp_path: Path) -> None:
    tool = Path(sys.executable).with_name("schemathesis")
    with mock_workers(1) as workers, gateway([workers[0].url]) as program:
        run = subprocess.run(
            [tool, "run", f"{program.url}/openapi.json", "--phases", "examples,coverage,fuzzing,stateful", "--no-color",
             "-n", EXAMPLES, "--seed", seed, "--exclude-checks", ",".join(UNFIT), "--suppress-health-check", "all"],
            cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
            env={name: value for name, value in os.environ.items() if "PROXY" not in name.upper()},
        )  # fmt: skip
        assert run.returncode == 0, run.stdout[-6000:]
        assert "Tested: " in run.stdout
