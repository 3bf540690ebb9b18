"""docker-compose.yml: what it starts exists, is locked down, and is published on this machine only."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.deployment import COMPOSE_FILE, DEPLOY, PROMETHEUS, ROOT, compose

SERVICES: dict[str, dict[str, Any]] = compose()["services"]
WORKERS = sorted(name for name in SERVICES if name.startswith("worker-"))
GATEWAY = yaml.safe_load((DEPLOY / "prefix-router.yaml").read_text())
PROGRAMS = Path(sys.executable).parent
each_service = pytest.mark.parametrize("name", sorted(SERVICES))


def test_it_starts_the_gateway_three_workers_prometheus_and_grafana() -> None:
    assert set(SERVICES) == {"gateway", "worker-1", "worker-2", "worker-3", "prometheus", "grafana"}


def test_it_has_no_version_key_which_compose_2_warns_about() -> None:
    assert "version" not in compose()


@each_service
def test_a_service_cannot_write_to_its_image_or_gain_rights(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")
    assert 0 < service["pids_limit"] <= 512
    assert service.get("user") != "root"


@each_service
def test_a_service_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}


@each_service
def test_a_port_is_published_on_this_machine_only_and_can_be_moved(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z_]+:-\d+\}:\d+", port)


@each_service
def test_a_path_of_the_host_exists_and_is_mounted_read_only(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source, _, *mode = volume.split(":")
        if source.startswith("."):
            assert (ROOT / source).exists()
            assert mode == ["ro"]
        else:
            assert source in compose()["volumes"]


@each_service
def test_an_image_is_built_here_or_pinned_to_a_version(name: str) -> None:
    service = SERVICES[name]
    if "build" in service:
        assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    else:
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"])


@each_service
def test_what_a_service_waits_for_has_a_health_check(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        assert "healthcheck" in SERVICES[other]


def test_the_workers_are_reached_over_an_internal_network_only() -> None:
    assert compose()["networks"]["fleet"] == {"internal": True}
    assert [SERVICES[name]["networks"] for name in WORKERS] == [["fleet"]] * 3


def test_gateway_and_prometheus_look_for_the_workers_where_they_listen() -> None:
    command = SERVICES["worker-1"]["command"]
    port = command[command.index("--port") + 1]
    listening = {f"{name}:{port}" for name in WORKERS}
    jobs = {
        job["job_name"]: job for job in yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    }
    scraped = {target for group in jobs["workers"]["static_configs"] for target in group["targets"]}
    assert {worker["url"].removeprefix("http://") for worker in GATEWAY["workers"]} == listening == scraped
    assert jobs["prefix-router"]["static_configs"] == [{"targets": [f"gateway:{GATEWAY['listen']['port']}"]}]


def test_running_answers_may_end_before_the_gateway_is_killed() -> None:
    shutdown = GATEWAY["shutdown"]
    limit = float(SERVICES["gateway"]["stop_grace_period"].removesuffix("s"))
    assert shutdown["grace_seconds"] + shutdown["drain_seconds"] < limit


@pytest.mark.parametrize("name", ["gateway", "worker-1"])
def test_a_program_knows_every_flag_that_it_is_started_with(name: str) -> None:
    program, command, *flags = SERVICES[name]["command"]
    asked = subprocess.run([PROGRAMS / program, command, "--help"], capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked.stderr
    for flag in flags:
        if flag.startswith("--"):
            assert re.search(rf"{flag}\b", asked.stdout)


def check_gateway(**variables: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFIX_ROUTER_")}
    command = [PROGRAMS / "prefix-router", "check", "--config", DEPLOY / "prefix-router.yaml"]
    return subprocess.run(command, env=clean | variables, capture_output=True, text=True, timeout=60)


def test_the_gateway_accepts_its_settings_and_shows_no_token() -> None:
    checked = check_gateway(PREFIX_ROUTER_ADMIN_TOKEN="a-token-of-the-test")
    assert checked.returncode == 0, checked.stderr
    assert "a-token-of-the-test" not in checked.stdout + checked.stderr


def test_the_gateway_refuses_to_start_without_a_token_in_its_environment() -> None:
    checked = check_gateway()
    assert checked.returncode == 2
    assert "admin_token" in checked.stdout + checked.stderr


@pytest.mark.system("docker-compose")
def test_the_older_compose_reads_the_file() -> None:
    command = ["docker-compose", "--file", COMPOSE_FILE, "config", "--services"]
    read = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert read.returncode == 0, read.stderr
    assert set(read.stdout.split()) == set(SERVICES)
