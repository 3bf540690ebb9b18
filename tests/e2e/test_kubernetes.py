"""Real processes before real mock workers, which a Kubernetes API tells of: rollouts, outages, restarts, under load."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.kube_api import KubeApi, kube_api, kubeconfig, pod, slice_of
from tests.support.processes import Program, mock_workers, running, until
from tests.support.several import Several, Streaming

SLOW = ("--decode-tokens-per-second", "15")  # thirty tokens take two seconds
BOTH = pytest.mark.parametrize("processes", [1, 2])


def told(worker: Program, name: str, **conditions: bool) -> dict[str, Any]:
    """A slice with this worker alone, as the pod of this name."""
    return slice_of(name, pod(name, "127.0.0.1", **conditions), port=int(worker.url.rpartition(":")[2]))


class Front(Several):
    """A gateway that asks the API who its workers are."""

    def __init__(self, program: Program, folder: Path) -> None:
        super().__init__(program, [])
        self.folder = folder

    def sees(self, *names: str) -> None:
        """Wait until every process finds these workers ready, and knows no others."""
        wanted = dict.fromkeys(names, "ready")
        until(lambda: self.everywhere(lambda: self.states() == wanted), 60)

    def write(self, **kubernetes: Any) -> None:
        write(self.folder, **kubernetes)

    def log(self) -> str:
        return (self.folder / "log").read_text()


def write(folder: Path, **kubernetes: Any) -> None:
    found = {"service": "vllm", "kubeconfig": str(folder / "kubeconfig"), **kubernetes}
    settings = {
        "discovery": {"kubernetes": found}, "log": {"access": str(folder / "access")}, "shutdown": {"grace_seconds": 0}
    }  # fmt: skip
    other = folder / "settings.new"
    other.write_text(json.dumps(settings))
    other.rename(folder / "settings.yaml")


@contextmanager
def in_front(folder: Path, api: KubeApi, processes: int) -> Iterator[Front]:
    kubeconfig(folder, api.url, {"token": "s3cret-token"})
    write(folder)
    flags = ("--config", str(folder / "settings.yaml"), "--processes", str(processes), "--port", "0")
    with (folder / "log").open("w") as log, running("router", "serve", *flags, stderr=log) as program:
        yield Front(program, folder)


@BOTH
def test_a_rollout_under_load_loses_no_stream_and_sends_nothing_to_who_ends(tmp_path: Path, processes: int) -> None:
    with kube_api() as api, mock_workers(3, *SLOW) as (one, two, three):
        api.tokens = {"s3cret-token"}
        api.put(told(one, "vllm-0"), told(two, "vllm-1"))
        with in_front(tmp_path, api, processes) as front:
            front.sees("vllm-0", "vllm-1")
            streams = [Streaming(front, 30) for _ in range(6)]
            api.put(told(three, "vllm-2"))
            front.sees("vllm-0", "vllm-1", "vllm-2")
            api.put(told(one, "vllm-0", ready=False, serving=True, terminating=True))
            front.sees("vllm-1", "vllm-2")
            assert {front.chat(f"after {at}").headers["x-router-worker"] for at in range(12)} <= {"vllm-1", "vllm-2"}
            assert all(stream.end() for stream in streams)
            api.remove("vllm-0")
            api.put(told(two, "vllm-1", ready=False, serving=False, terminating=True))
            front.sees("vllm-2")
            until(lambda: front.in_flight() == 0)
            assert api.most_watches == api.open_watches == processes
            assert front.end() == 0
        assert "s3cret-token" not in front.log() + (tmp_path / "access").read_text()
        until(lambda: api.open_watches == 0)


@BOTH
def test_an_outage_of_the_api_is_not_one_of_the_gateway(tmp_path: Path, processes: int) -> None:
    with kube_api() as api, mock_workers(2, "--time-scale", "0") as (one, two):
        api.put(told(one, "vllm-0"))
        with in_front(tmp_path, api, processes) as front:
            front.sees("vllm-0")
            until(lambda: api.open_watches == processes)
            api.refusal = (503, {})
            api.end_watches("cut")
            until(lambda: front.log().count("(503); 1 worker known before stay") == processes)
            assert all(front.chat(str(at)).status_code == 200 for at in range(10))
            with api.changed:  # what happens meanwhile is never told, only listed
                api.put(told(two, "vllm-1"))
                api.remove("vllm-0")
                api.forget()
            api.refusal = None
            front.sees("vllm-1")
            assert front.chat().headers["x-router-worker"] == "vllm-1"
            assert front.log().count("(503)") == processes, "an outage is told once"
            assert front.end() == 0


@BOTH
def test_changed_settings_swap_the_watch_in_every_process(tmp_path: Path, processes: int) -> None:
    with kube_api() as api, mock_workers(2, "--time-scale", "0") as (one, two):
        api.put(told(one, "vllm-0"), told(two, "other-0") | {"metadata": slice_of("o", service="other")["metadata"]})
        with in_front(tmp_path, api, processes) as front:
            front.sees("vllm-0")
            front.write(service="other")
            front.sees("other-0")
            until(lambda: api.open_watches == processes)
            assert front.end() == 0


def test_a_successor_knows_the_cluster_s_workers_before_it_takes_requests(tmp_path: Path) -> None:
    with kube_api() as api, mock_workers(2, "--time-scale", "0") as (one, two):
        api.put(told(one, "vllm-0"), told(two, "vllm-1"))
        with in_front(tmp_path, api, 2) as front:
            front.sees("vllm-0", "vllm-1")
            before = set(front.pids())
            front.program.process.send_signal(signal.SIGUSR2)
            statuses = []
            while before & set(front.pids()) or len(statuses) < 50:
                statuses.append(front.chat(str(len(statuses))).status_code)
            assert set(statuses) == {200}
            front.sees("vllm-0", "vllm-1")
            assert front.end() == 0


def test_a_successor_that_cannot_learn_who_the_workers_are_takes_nobody_s_place(tmp_path: Path) -> None:
    with kube_api() as api, mock_workers(1, "--time-scale", "0") as (one,):
        api.put(told(one, "vllm-0"))
        with in_front(tmp_path, api, 2) as front:
            front.sees("vllm-0")
            before = set(front.pids())
            api.refusal = (503, {})
            front.program.process.send_signal(signal.SIGUSR2)
            until(lambda: "(503); nothing is known yet" in front.log())
            end, statuses = time.monotonic() + 4, set()  # twice as long as it waits for workers' first probes
            while time.monotonic() < end:
                statuses.add(front.chat().status_code)
            assert statuses == {200}
            assert before <= set(front.pids()), "they stay, beside one that waits"
            api.refusal = None
            until(lambda: not before & set(front.pids()), 60)
            assert {front.chat(str(at)).status_code for at in range(20)} == {200}
            assert front.end() == 0


def test_the_end_does_not_wait_for_an_api_that_is_away(tmp_path: Path) -> None:
    with kube_api() as api:
        with in_front(tmp_path, api, 2) as front:
            front.sees()
            api.refusal = (503, {})
            front.program.process.send_signal(signal.SIGUSR2)
            until(lambda: "(503); nothing is known yet" in front.log())
            assert front.end() == 0
