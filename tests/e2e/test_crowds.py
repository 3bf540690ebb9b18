"""Many clients of one process: the benchmarks of streams and of idle connections, made smaller."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
MOST_KB = 12.0  # that an idle client may take
SLACK_KB = 4.0  # a page of anything, spread over a tenth of the clients that it is measured with


def measured(script: str, *flags: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(BENCH / script), *flags, "--json"], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(240)
def test_hundreds_of_streams_at_once_lose_and_mix_up_no_event() -> None:
    seen = measured("many_streams.py", "--streams", "300", "--events", "40", "--pace", "0.1")
    assert (seen["whole"], seen["events"], seen["faults"]) == (300, 300 * 40, [])
    assert seen["open_at_one_time"] == 300


@pytest.mark.timeout(240)
def test_idle_clients_stay_connected_and_take_little_memory() -> None:
    seen = measured("idle.py", "--clients", "1000")
    assert seen["still_open"] == 1000
    assert 0 < seen["after_stream_kb"] < MOST_KB + SLACK_KB
