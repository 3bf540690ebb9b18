"""The gateway, started with the deployed settings, exports every metric that alerts and dashboards may name."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.support.deployment import COUNTERS_AND_GAUGES, DEPLOY, HISTOGRAMS

PROGRAM = Path(sys.executable).parent / "prefix-router"


@pytest.fixture(scope="module")
def exposition(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The /metrics of a gateway with the settings of the compose file, on an address of this test's own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = yaml.safe_load((DEPLOY / "prefix-router.yaml").read_text())
    settings["listen"] = {"host": "127.0.0.1", "port": port}
    settings["shutdown"]["grace_seconds"] = 0
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    with open(folder / "log", "w+") as log:
        command = [PROGRAM, "serve", "--config", folder / "settings.yaml"]
        variables = os.environ | {"PREFIX_ROUTER_ADMIN_TOKEN": "a-token-of-the-test"}
        with subprocess.Popen(command, env=variables, stdout=log, stderr=log) as gateway:
            try:
                yield read_metrics(port)
            except httpx.TransportError as fault:
                fault.add_note((folder / "log").read_text())
                raise
            finally:
                gateway.terminate()


def read_metrics(port: int, limit: float = 20) -> str:
    end = time.monotonic() + limit
    while True:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=5).raise_for_status().text
        except httpx.TransportError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def exported(exposition: str, kinds: str) -> set[str]:
    return set(re.findall(rf"^# TYPE prefix_router_(\w+) (?:{kinds})$", exposition, re.MULTILINE))


def test_every_counter_and_gauge_is_exported(exposition: str) -> None:
    assert set(COUNTERS_AND_GAUGES) - exported(exposition, "counter|gauge") == set()


def test_every_histogram_is_exported(exposition: str) -> None:
    assert set(HISTOGRAMS) - exported(exposition, "histogram") == set()


@pytest.mark.system("promtool")
def test_promtool_has_no_objection_to_the_exposition(exposition: str) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=exposition, capture_output=True, text=True, timeout=30
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
