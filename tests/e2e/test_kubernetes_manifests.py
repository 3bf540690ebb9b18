"""The shipped settings at work: a real gateway finds the engines by a Kubernetes API, and takes a swapped ConfigMap."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import yaml

from tests.support.kube_api import KubeApi, kube_api, kubeconfig, pod, slice_of
from tests.support.manifests import KUBERNETES, load
from tests.support.processes import Program, mock_workers, running, until

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"  # HealthCheckResponse.status
TOKEN = {"Authorization": "Bearer a-token-of-the-test"}
(NAME, TEXT), *_ = load(KUBERNETES / "base/settings.yaml")["data"].items()


def mount(folder: Path, text: str, number: int) -> Path:
    """As a kubelet does: the file is a link into a link, and that is swapped for one to a new folder."""
    (folder / f"..{number}").mkdir()
    (folder / f"..{number}" / NAME).write_text(text)
    (folder / "..data_tmp").symlink_to(f"..{number}")
    (folder / "..data_tmp").rename(folder / "..data")
    if not (folder / NAME).is_symlink():
        (folder / NAME).symlink_to(f"..data/{NAME}")
    return folder / NAME


@contextmanager
def in_a_pod(folder: Path, api: KubeApi, command: str) -> Iterator[Program]:
    """With the variables that a kubelet sets for the Service `prefix-router`, too."""
    settings = {
        "discovery.kubernetes.kubeconfig": str(kubeconfig(folder, api.url)), "service_host": "10.0.0.1",
        "port": "tcp://10.0.0.1:8080", "port_8080_tcp_addr": "10.0.0.1",
        "picker.http_port": "0", "listen.host": "127.0.0.1",
    }  # fmt: skip
    flags = ("--config", str(mount(folder, TEXT, 1)), "--host", "127.0.0.1", "--port", "0")
    with running("router", command, *flags, settings=settings) as program:
        yield program


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADMIN_TOKEN", TOKEN["Authorization"].split()[1])


def get(program: Program, path: str) -> Any:
    answer = httpx.get(program.url + path, headers=TOKEN)
    assert answer.status_code == 200, answer.text
    return answer.json()


def shown(program: Program, path: str) -> Any:
    return next(row["value"] for row in get(program, "/admin/config")["settings"] if row["path"] == path)


def test_the_shipped_settings_find_the_engines_and_a_swapped_config_map_counts(tmp_path: Path) -> None:
    with mock_workers(2) as (one, other), kube_api() as api:
        ports = [int(worker.url.rsplit(":", 1)[1]) for worker in (one, other)]
        api.put(slice_of("vllm-a", pod("vllm-0", "127.0.0.1"), port=ports[0]))
        with in_a_pod(tmp_path, api, "serve") as program:
            until(lambda: httpx.get(f"{program.url}/readyz").status_code == 200)
            assert [worker["id"] for worker in get(program, "/admin/workers")["workers"]] == ["vllm-0"]

            api.put(slice_of("vllm-b", pod("vllm-1", "127.0.0.1"), port=ports[1]))
            until(lambda: httpx.get(f"{program.url}/readyz").json()["workers_ready"] == 2)

            changed = yaml.safe_load(TEXT) | {"queue": {"max": 7}}
            mount(tmp_path, yaml.safe_dump(changed), 2)
            until(lambda: shown(program, "queue.max") == 7)
            assert len(get(program, "/admin/workers")["workers"]) == 2


def test_the_picker_finds_the_engines_by_the_same_settings(tmp_path: Path) -> None:
    with mock_workers(1) as (one,), kube_api() as api, in_a_pod(tmp_path, api, "picker") as program:
        assert program.process.stdout is not None
        line = program.process.stdout.readline()  # the second: the first was that of health and metrics
        assert " picker listening on " in line
        with grpc.insecure_channel(line.rsplit("//", 1)[1].strip()) as channel:
            ask = channel.unary_unary("/grpc.health.v1.Health/Check")
            assert ask(b"", timeout=20) == NOT_SERVING
            assert httpx.get(f"{program.url}/readyz").status_code == 503
            api.put(slice_of("vllm-a", pod("vllm-0", "127.0.0.1"), port=int(one.url.rsplit(":", 1)[1])))
            until(lambda: ask(b"", timeout=20) == SERVING)
            assert httpx.get(f"{program.url}/readyz").status_code == 200
