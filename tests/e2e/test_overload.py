"""The overload benchmark at its shortest: real processes, twice the capacity. Figures are not judged here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(120)
def test_twice_the_capacity_is_answered_or_refused_and_nothing_breaks() -> None:
    command = [sys.executable, "bench/overload.py", "--json", "--seconds", "2", "--loads", "2"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    found = json.loads(said.stdout)
    assert set(found["holds"]) == {"goodput", "wait_limit", "health_and_admin"}
    half, twice = found["loads"]
    assert (half["load"], twice["load"]) == (0.5, 2.0)
    assert twice["goodput"] > half["goodput"] > 0
    assert twice["refused"] > 0.2
    assert half["errors"] == twice["errors"] == 0
    assert max(row["healthz_worst"] for row in found["loads"]) < 5.0
