"""The parent, as a real process: how it starts, what it survives, how it gives up, and what it never shows."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from router.layers import load
from router.processes.supervisor import process_count
from tests.support.processes import Program, until
from tests.support.several import CLIENT, Several, alive, several

SECRET = "the-very-secret-key"
FAULTY = """
import multiprocessing
from router.policies.random import Options, build as well

def build(options, tools):
    if multiprocessing.parent_process() is not None:
        raise RuntimeError("this policy fails in a child")
    return well(options, tools)
"""


@contextmanager
def started(
    folder: Path, *flags: str, command: Sequence[str] = (), **environment: str
) -> Iterator["subprocess.Popen[str]"]:
    """A gateway whose standard error is a file in this folder."""
    command = command or [sys.executable, "-m", "router", "serve", "--port", "0", *flags]
    with (folder / "stderr").open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **environment}
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def children(pid: int) -> list[int]:
    said = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True).stdout
    rows = [line.split(None, 2) for line in said.splitlines()]
    return [int(row[0]) for row in rows if int(row[1]) == pid and "spawn_main" in row[-1]]


def answers(url: str) -> bool:
    try:
        return CLIENT.get(f"{url}/healthz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def errors(folder: Path) -> list[str]:
    return (folder / "stderr").read_text().splitlines()


@pytest.mark.parametrize(("given", "count"), [(3, 3), (1, 1)])
def test_as_many_processes_as_asked_for(given: int, count: int) -> None:
    settings, _ = load([("test", {"listen": {"processes": given}})], {})
    assert process_count(settings) == count


def test_zero_processes_means_one_a_core() -> None:
    settings, _ = load([("test", {"listen": {"processes": 0}})], {})
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert process_count(settings) == cores


def test_one_process_needs_no_parent(tmp_path: Path) -> None:
    with started(tmp_path, "--processes", "1") as process:
        assert process.stdout is not None
        assert " listening on " in process.stdout.readline()
        assert children(process.pid) == []
        process.terminate()
        assert process.wait(timeout=20) == 0


def test_the_address_is_printed_once_and_nothing_else(tmp_path: Path) -> None:
    with started(tmp_path, "--processes", "3", PREFIX_ROUTER_SHUTDOWN__GRACE_SECONDS="0") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert re.fullmatch(r"prefix-router listening on http://127\.0\.0\.1:\d+\n", line)
        assert len(children(process.pid)) == 3
        process.terminate()
        assert process.wait(timeout=20) == 0
        assert process.stdout.read() == ""
    assert errors(tmp_path) == []


def test_secrets_are_neither_in_arguments_nor_in_the_environment_of_a_process(tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    worker = {"url": "http://127.0.0.1:1", "api_key": SECRET}
    config.write_text(json.dumps({"admin_token": SECRET, "auth": {"api_keys": [SECRET]}, "workers": [worker]}))
    with started(tmp_path, "--processes", "2", "--config", str(config)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for pid in children(process.pid):
            shown = subprocess.run(["ps", "-E", "-ww", "-o", "args", "-p", str(pid)], capture_output=True).stdout
            for name in ("cmdline", "environ"):
                file = Path(f"/proc/{pid}/{name}")
                shown += file.read_bytes() if file.exists() else b""
            assert SECRET.encode() not in shown


def test_a_taken_port_is_exit_1_and_one_line_even_where_it_is_shared(tmp_path: Path) -> None:
    with several(0) as front:
        port = front.url.rsplit(":", 1)[1]
        with started(tmp_path, "--processes", "2", "--port", port) as process:
            assert process.wait(timeout=20) == 1
    assert errors(tmp_path) == [f"prefix-router: cannot listen on 127.0.0.1:{port}: Address already in use"]


def test_a_fault_at_the_start_is_exit_1_with_one_line_of_the_parents_own(tmp_path: Path) -> None:
    (tmp_path / "faulty").mkdir()
    (tmp_path / "faulty" / "policy.py").write_text(FAULTY)
    with started(tmp_path, "--processes", "2", "--policy", "faulty.policy", PYTHONPATH=str(tmp_path)) as process:
        assert process.wait(timeout=30) == 1
        assert process.stdout is not None
        assert process.stdout.read() == ""
    own = [line for line in errors(tmp_path) if line.startswith("prefix-router: ")]
    assert len(own) == 1
    assert re.fullmatch(r"prefix-router: process \d of 2 failed to start \(pid \d+, exit status 1\)", own[0])
    assert any("this policy fails in a child" in line for line in errors(tmp_path)), "the fault itself is told too"


@pytest.mark.parametrize("to_all", [False, True], ids=["to the parent", "to the group"])
def test_a_stop_while_the_processes_start_is_clean(tmp_path: Path, to_all: bool) -> None:
    with started(tmp_path, "--processes", "2") as process:
        until(lambda: len(children(process.pid)) == 2)
        pids = children(process.pid)
        for pid in [process.pid, *(pids if to_all else [])]:
            os.kill(pid, signal.SIGINT)
        assert process.wait(timeout=30) == 0
        assert not any(alive(pid) for pid in pids)
    assert errors(tmp_path) == []


def test_one_that_dies_over_and_over_is_replaced_with_growing_delays(tmp_path: Path) -> None:
    with started(tmp_path, "--processes", "2", PREFIX_ROUTER_SHUTDOWN__GRACE_SECONDS="0") as process:
        assert process.stdout is not None
        url = process.stdout.readline().rsplit(" ", 1)[1].strip()
        before = set(children(process.pid))
        pid = min(before)
        for _ in range(3):
            os.kill(pid, signal.SIGKILL)
            until(lambda: bool(set(children(process.pid)) - before))  # a successor, maybe before this one is reaped
            (pid,) = set(children(process.pid)) - before
            before.add(pid)
        until(lambda: Several(Program(process, url), []).everywhere(lambda: answers(url)))
        process.terminate()
        assert process.wait(timeout=20) == 0
    told = [line.partition("; ")[2] for line in errors(tmp_path) if " ended (pid " in line and "SIGKILL" in line]
    assert told == [f"another is started in {delay} s" for delay in ("0.25", "0.5", "1")]


def test_where_the_kernel_does_not_spread_connections_all_processes_take_them_from_one_socket(tmp_path: Path) -> None:
    code = """
import sys
from router.cli import main
from router.processes import listeners
listeners.bind_all.__kwdefaults__["one_each"] = False
sys.exit(main())
"""
    command = [sys.executable, "-c", code, "serve", "--port", "0", "--processes", "2"]
    with started(tmp_path, command=command, PREFIX_ROUTER_SHUTDOWN__GRACE_SECONDS="0") as process:
        assert process.stdout is not None
        front = Several(Program(process, process.stdout.readline().rsplit(" ", 1)[1].strip()), [])
        pid = front.pids()[0]
        os.kill(pid, signal.SIGKILL)
        assert front.everywhere(lambda: answers(front.url)), "the other takes them all"
        until(lambda: pid not in front.pids() and len(front.pids()) == 2)
        assert front.end() == 0
        assert not answers(front.url)


def test_a_hangup_of_the_whole_group_is_one_reload_and_ends_nobody(tmp_path: Path) -> None:
    with started(tmp_path, "--processes", "2", PREFIX_ROUTER_SHUTDOWN__GRACE_SECONDS="0") as process:
        assert process.stdout is not None
        process.stdout.readline()
        pids = children(process.pid)
        for sig in (signal.SIGHUP, signal.SIGUSR2):
            for pid in pids:
                os.kill(pid, sig)
        process.send_signal(signal.SIGHUP)
        until(lambda: any("SIGHUP" in line for line in errors(tmp_path)))
        assert len([line for line in errors(tmp_path) if "SIGHUP" in line]) == 1
        assert children(process.pid) == pids
        process.terminate()
        assert process.wait(timeout=20) == 0


def test_too_few_open_files_are_one_line_and_no_traceback(tmp_path: Path) -> None:
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)); "
    code = limited + "from router.cli import main; sys.exit(main())"
    with started(tmp_path, command=[sys.executable, "-c", code, "serve", "--port", "0", "--processes", "4"]) as process:
        assert process.wait(timeout=30) == 1
        assert process.stdout is not None
        assert process.stdout.read() == ""
    (line,) = errors(tmp_path)
    assert line == "prefix-router: 4 processes need at least 96 open files each, and `ulimit -n` allows 40"
