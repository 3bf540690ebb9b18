"""The demo as a user runs it: real processes, a real load, one run."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SECONDS = 20
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "router", "demo", "--port", "0", *arguments]


@contextmanager
def running_demo() -> Iterator[subprocess.Popen[str]]:
    """A demo that has begun to measure."""
    with subprocess.Popen(command(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any("Watch it live" in line for line in process.stdout)
            yield process
        finally:
            process.kill()


def children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def wait_until_gone(pids: list[int]) -> list[int]:
    """Those still there after a while. Orphans may stay as zombies where no init reaps them."""
    deadline = time.monotonic() + 10.0
    while left := [pid for pid in pids if _runs(pid)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_default_policy_beats_random_in_one_short_run() -> None:
    began = time.monotonic()
    done = subprocess.run(command("--seconds", str(SECONDS), "--json"), capture_output=True, text=True, timeout=100)
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    assert took < SECONDS + 2
    said = json.loads(done.stdout)
    assert said["url"].startswith("http://127.0.0.1:")
    assert list(said["policies"]) == ["random", "prefix_cost"]
    base, new = said["policies"].values()
    for figures in (base, new):
        assert figures["errors"] == 0
        assert figures["requests"] == base["requests"] > 20
        assert sum(figures["requests_per_worker"].values()) == figures["requests"]
        assert list(figures["requests_per_worker"]) == ["worker-1", "worker-2", "worker-3"]
        assert 0 < figures["ttft_p50"] <= figures["ttft_p90"]
        assert figures["output_tokens_per_second"] > 0
    assert new["ttft_p50"] < 0.8 * base["ttft_p50"]  # a tenth is usual; a busy machine adds to both
    assert new["cached_share"] > 1.5 * base["cached_share"]  # four times is usual


def test_a_taken_port_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(command("--port", str(port)), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == f"prefix-router: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@LINUX
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_however_it_is_ended_no_child_stays(number: int, status: int) -> None:
    with running_demo() as process:
        pids = children(process.pid)
        assert len(pids) == 4
        os.kill(process.pid, number)
        assert process.wait(timeout=30) == status
    assert wait_until_gone(pids) == []
