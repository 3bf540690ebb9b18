"""Real processes: settings are reloaded, processes are renewed, frozen ones replaced, and no client notices."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.processes import Program, mock_workers, running, until
from tests.support.several import CHAT, CLIENT, Several, Streaming, several

SLOW = ("--decode-tokens-per-second", "15")  # thirty tokens take two seconds
QUICK = ("--prefill-tokens-per-second", "100000", "--decode-tokens-per-second", "2000")


class Front(Several):
    """A gateway with a file of settings."""

    def __init__(self, program: Program, path: Path, errors: Path) -> None:
        super().__init__(program, [])
        self.path, self._errors = path, errors

    def write(self, **settings: Any) -> None:
        """As an editor does: whole, in one step."""
        write(self.path, **settings)

    def config(self) -> dict[str, Any]:
        return {row["path"]: row["value"] for row in self.get("/admin/config")["settings"]}

    def refused(self) -> float:
        return self.metrics()["prefix_router_config_reload_failed"]

    def told(self, text: str) -> int:
        return sum(text in line for line in self._errors.read_text().splitlines())


def write(path: Path, **settings: Any) -> None:
    other = path.with_suffix(".new")
    other.write_text(json.dumps({"log": {"access": "none"}, "shutdown": {"grace_seconds": 0}} | settings))
    other.rename(path)


@contextmanager
def with_file(folder: Path, processes: int, path: Path | None = None, **settings: Any) -> Iterator[Front]:
    path = path or folder / "settings.yaml"
    if settings or not path.exists():
        write(path, **settings)
    errors = folder / "errors"
    flags = ("--port", "0", "--processes", str(processes), "--config", str(path))
    with errors.open("w") as written, running("router", "serve", *flags, stderr=written) as program:
        yield Front(program, path, errors)


BOTH = pytest.mark.parametrize("processes", [1, 2])


@BOTH
def test_a_changed_file_counts_in_every_process_without_a_word(tmp_path: Path, processes: int) -> None:
    with mock_workers(2, *QUICK) as (one, other), with_file(tmp_path, processes, workers=[one.url]) as front:
        until(lambda: front.everywhere(lambda: front.ready() == 1))
        front.write(workers=[other.url], routing={"policy": "random"})
        until(lambda: front.everywhere(lambda: [*front.states().values()] == ["ready"]))
        until(lambda: front.everywhere(lambda: list(front.states()) == [other.url.removeprefix("http://")]))
        assert front.everywhere(lambda: front.config()["routing.policy"] == "random")
        assert {front.chat(str(at)).headers["x-router-policy"] for at in range(8)} == {"random"}
        assert front.end() == 0


@BOTH
def test_a_hangup_reloads_and_bad_settings_are_told_once(tmp_path: Path, processes: int) -> None:
    with with_file(tmp_path, processes, queue={"max": 1}) as front:
        front.write(queue={"max": "many"}, nonsense=1)
        until(lambda: front.everywhere(lambda: front.refused() == 1))
        assert (front.told("queue.max: "), front.told("nonsense: ")) == (1, 1)
        front.program.process.send_signal(signal.SIGHUP)
        until(lambda: front.told("(SIGHUP)") == 3)
        assert front.everywhere(lambda: front.config()["queue.max"] == 1)
        front.write(queue={"max": 2})
        front.program.process.send_signal(signal.SIGHUP)
        until(lambda: front.everywhere(lambda: front.config()["queue.max"] == 2 and front.refused() == 0))
        assert front.end() == 0


@BOTH
def test_a_file_that_is_empty_or_gone_changes_nothing(tmp_path: Path, processes: int) -> None:
    with with_file(tmp_path, processes, queue={"max": 1}) as front:
        front.path.write_text("")
        until(lambda: front.everywhere(lambda: front.refused() == 1))
        assert front.told("it is empty, and may be half written") == 1
        front.write(queue={"max": 2})
        until(lambda: front.everywhere(lambda: front.refused() == 0))
        front.path.unlink()
        until(lambda: front.everywhere(lambda: front.refused() == 1))
        assert front.told("No such file or directory") == 1
        answer = front.ask("POST", "/admin/reload")
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_settings")
        assert "No such file or directory" in answer.json()["error"]["message"]
        assert front.everywhere(lambda: front.config()["queue.max"] == 2)
        front.write(queue={"max": 3})
        until(lambda: front.everywhere(lambda: front.config()["queue.max"] == 3 and front.refused() == 0))


def test_a_link_that_leads_elsewhere_is_a_changed_file(tmp_path: Path) -> None:
    """As Kubernetes swaps what a ConfigMap holds: the file is a link into a folder that is a link itself."""
    for name, most in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "settings.yaml", queue={"max": most})
    (tmp_path / "..data").symlink_to("a")
    path = tmp_path / "settings.yaml"
    path.symlink_to("..data/settings.yaml")
    with with_file(tmp_path, 1, path) as front:
        assert front.config()["queue.max"] == 1
        (tmp_path / "..new").symlink_to("b")
        (tmp_path / "..new").rename(tmp_path / "..data")
        until(lambda: front.config()["queue.max"] == 2)


@BOTH
def test_the_route_reloads_all_and_says_what_changed(tmp_path: Path, processes: int) -> None:
    with with_file(tmp_path, processes, queue={"max": 1}) as front:
        front.write(queue={"max": 2}, listen={"processes": 7, "port": 1}, log={"access": "stdout"})
        answer = front.ask("POST", "/admin/reload")
        assert (answer.status_code, set(answer.json())) == (200, {"changed", "restart"})
        assert front.everywhere(lambda: front.config()["queue.max"] == 2), "as soon as it is answered"
        assert front.get("/admin/config")["settings"], "it still answers where it did"
        again = front.ask("POST", "/admin/reload").json()
        assert again == {"changed": [], "restart": ["log.access"]}, "flags go over the file"


def test_without_a_file_nothing_changes_and_that_is_said(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with errors.open("w") as written, running("router", "serve", "--port", "0", stderr=written) as program:
        program.process.send_signal(signal.SIGHUP)
        until(lambda: "there is no --config file" in errors.read_text())
        assert httpx.post(f"{program.url}/admin/reload").json() == {"changed": [], "restart": []}
        program.process.send_signal(signal.SIGUSR2)
        until(lambda: "a rolling restart needs several processes" in errors.read_text())
        assert program.stop() == 0


FAULTY = """
import multiprocessing
from router.policies.random import Options, build as well

def build(options, tools):
    name = multiprocessing.current_process().name
    if name == "prefix-router 1":
        raise RuntimeError("this policy fails in one process")
    return well(options, tools)
"""


def test_where_one_process_cannot_take_the_settings_none_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "faulty").mkdir()
    (tmp_path / "faulty" / "policy.py").write_text(FAULTY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with with_file(tmp_path, 2, queue={"max": 1}) as front:
        pids = front.pids()
        front.write(queue={"max": 2}, routing={"policy": "faulty.policy"})
        answer = front.ask("POST", "/admin/reload")
        assert answer.status_code == 422, answer.text
        assert front.everywhere(lambda: front.config()["queue.max"] == 1 and front.refused() == 1)
        assert front.everywhere(lambda: front.config()["routing.policy"] == "prefix_cost")
        assert front.pids() == pids
        front.write(queue={"max": 3})
        assert front.ask("POST", "/admin/reload").json()["changed"] == ["queue.max"]
        assert front.everywhere(lambda: front.config()["queue.max"] == 3 and front.refused() == 0)


def test_a_process_that_is_started_later_has_the_new_settings(tmp_path: Path) -> None:
    with with_file(tmp_path, 2, queue={"max": 1}) as front:
        front.write(queue={"max": 2})
        assert front.ask("POST", "/admin/reload").status_code == 200
        front.path.write_text("nonsense: 1")
        assert front.ask("POST", "/admin/reload").status_code == 422
        pid = front.pids()[0]
        os.kill(pid, signal.SIGKILL)
        until(lambda: pid not in front.pids() and len(front.pids()) == 2)
        until(lambda: front.everywhere(lambda: front.config()["queue.max"] == 2 and front.refused() == 1))


def test_an_admins_workers_and_drains_outlive_reloads_and_restarts(tmp_path: Path) -> None:
    with mock_workers(3, *QUICK) as (one, other, added), with_file(tmp_path, 2, workers=[one.url]) as front:
        until(lambda: front.everywhere(lambda: front.ready() == 1))
        (drained,) = front.states()
        front.ask("POST", f"/admin/workers/{drained}/drain")
        front.ask("POST", "/admin/workers", json={"url": added.url, "id": "added"})
        front.write(workers=[one.url, {"url": other.url, "id": "other"}])
        assert front.ask("POST", "/admin/reload").json()["changed"] == ["workers"]
        wanted = {drained: "draining", "added": "ready", "other": "ready"}
        until(lambda: front.everywhere(lambda: front.states() == wanted))
        renew(front)
        until(lambda: front.everywhere(lambda: front.states() == wanted))


# A rolling restart.


def renew(front: Several) -> None:
    """Start every process anew, and wait until the old ones take no new connections."""

    def at_work() -> set[int]:
        return {row["pid"] for row in front.rows() if not row["leaving"]}

    before = at_work()
    front.program.process.send_signal(signal.SIGUSR2)
    until(lambda: not before & at_work(), 60)
    assert len(at_work()) == len(before)


class Load:
    """Clients that ask over and over in threads of their own; `faults` is whatever went wrong."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.done = 0
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self, ask: Callable[[], bool]) -> None:
        self._threads.append(threading.Thread(target=self._run, args=(ask,), daemon=True))
        self._threads[-1].start()

    def _run(self, ask: Callable[[], bool]) -> None:
        while not self._stop.is_set():
            try:
                if not ask():
                    self.faults.append("a bad answer")
                self.done += 1
            except Exception as wrong:
                self.faults.append(repr(wrong))

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=60)
            assert not thread.is_alive()


def plain(url: str) -> bool:
    """One request over a raw connection of its own: nothing here tries again."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        body = b'{"model": "mock-model", "prompt": "hi", "max_tokens": 1}'
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        connection.sendall(head % len(body) + body)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    return answer.startswith(b"HTTP/1.1 200 ") and answer.rstrip().endswith(b"}")


def streamed(url: str) -> bool:
    body = {"model": "mock-model", "prompt": "hi", "stream": True, "max_tokens": 25}
    with CLIENT.stream("POST", url + "/v1/completions", json=body) as answer:
        return answer.read().endswith(b"data: [DONE]\n\n")


def kept_alive(client: httpx.Client, url: str) -> bool:
    """Another request on the same connection, as long as the gateway keeps it open."""
    time.sleep(0.01)
    body = {"model": "mock-model", "prompt": "hi", "max_tokens": 1}
    return client.post(url + "/v1/completions", json=body).status_code == 200


@pytest.mark.timeout(180)
def test_a_rolling_restart_refuses_no_connection_and_cuts_no_stream() -> None:
    with (
        several(2, "--decode-tokens-per-second", "25", **{"shutdown.grace_seconds": 1}) as front,
        httpx.Client(trust_env=False, timeout=30) as client,
    ):
        load = Load()
        for _ in range(3):
            load.begin(lambda: plain(front.url))
            load.begin(lambda: streamed(front.url))
        load.begin(lambda: kept_alive(client, front.url))
        time.sleep(0.5)
        long = [Streaming(front, 150) for _ in range(4)]
        for _ in range(2):
            renew(front)
        assert all(each.end() for each in long)
        load.end()
        assert load.faults == []
        assert load.done > 20
        until(lambda: len(front.rows()) == 2, 60)
        until(lambda: front.in_flight() == 0, 10)
        assert front.end() == 0


def test_the_counts_of_processes_that_were_renewed_stay(tmp_path: Path) -> None:
    with several(1, *QUICK, **{"shutdown.grace_seconds": 0}) as front:
        for at in range(10):
            assert front.chat(str(at)).status_code == 200
        renew(front)
        until(lambda: len(front.rows()) == 2)
        shown = front.metrics()
        assert sum(value for name, value in shown.items() if name.startswith("prefix_router_requests_total{")) == 10


def test_what_needs_a_restart_counts_after_a_rolling_one(tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    with mock_workers(1, *QUICK) as (worker,), with_file(tmp_path, 2, workers=[worker.url]) as front:
        until(lambda: front.everywhere(lambda: front.ready() == 1))
        front.write(workers=[worker.url], log={"access": str(log)})
        assert front.ask("POST", "/admin/reload").json() == {"changed": [], "restart": ["log.access"]}
        front.chat()
        assert not log.exists()
        renew(front)
        until(lambda: len(front.rows()) == 2)
        front.chat()
        until(lambda: log.exists() and CHAT in log.read_text())
        assert front.ask("POST", "/admin/reload").json() == {"changed": [], "restart": []}


def test_a_stop_in_the_middle_of_a_rolling_restart_is_clean() -> None:
    with several(1, *SLOW, **{"shutdown.grace_seconds": 0}) as front:
        stream = Streaming(front, 30)
        front.program.process.send_signal(signal.SIGUSR2)
        time.sleep(0.3)
        assert front.end() == 0
        assert stream.end()


def test_a_successor_that_dies_is_replaced_while_the_old_process_still_has_streams(tmp_path: Path) -> None:
    with several(1, *SLOW, **{"shutdown.grace_seconds": 0}) as front:
        streams = [Streaming(front, 400) for _ in range(8)]
        old = set(front.pids())
        renew(front)
        leaving = {row["pid"] for row in front.rows() if row["leaving"]}
        assert leaving & old, "some stream keeps its process"
        killed = {row["index"]: row["pid"] for row in front.rows() if not row["leaving"]}
        for pid in killed.values():
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(front.rows()) == 2 + len(leaving) and not {*killed.values()} & set(front.pids()), 60)
        until(lambda: front.everywhere(lambda: front.ready() == 1))
        assert {row["pid"] for row in front.rows() if row["leaving"]} == leaving, "its streams go on"
        del streams


# A process that hangs.


@pytest.mark.timeout(120)
def test_a_frozen_process_is_replaced_and_what_waited_for_it_is_served(tmp_path: Path) -> None:
    code = """
import sys
from router.processes import supervisor
supervisor.FROZEN_SECONDS = 4.0
from router.cli import main
sys.exit(main())
"""
    errors = tmp_path / "errors"
    with mock_workers(1, *QUICK) as (worker,), errors.open("w") as written:
        flags = ("serve", "--port", "0", "--processes", "2", "--worker", worker.url)
        with running(*flags, code=code, settings={"log.access": "none"}, stderr=written) as program:
            front = Several(program, [])
            until(lambda: front.everywhere(lambda: front.ready() == 1))
            frozen = front.pids()[0]
            os.kill(frozen, signal.SIGSTOP)
            with ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(lambda at: front.chat(str(at)).status_code, range(16)))
            assert answers == [200] * 16, "those that the kernel gave to the frozen one waited for its successor"
            until(lambda: frozen not in front.pids() and len(front.pids()) == 2)
            until(lambda: front.in_flight() == 0)
            assert f"process 0 (pid {frozen}) hangs and is killed" in errors.read_text()
            assert front.end() == 0
