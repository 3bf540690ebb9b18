"""What the manifests hand to the programs: settings that load, flags that exist, and time enough to end."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from router.settings import Settings
from router.wiring import Gateway
from tests.support.certificates import certificates
from tests.support.manifests import KUBERNETES, Manifest, container, load, options, pod, ports, the
from tests.support.processes import mock_workers, until

PROGRAMS = Path(sys.executable).parent
CONFIG = KUBERNETES / "base/settings.yaml"
OURS = {"gateway": the("Deployment", "prefix-router"), "picker": the("Deployment", "prefix-router-picker")}
ENGINES = the("StatefulSet", "vllm")
SECRETS = {
    "ADMIN_TOKEN": "a-token-of-the-test",
    "TEAM_A_KEY": "a-key-of-the-test",
    "REDIS_URL": "redis://:password-of-the-test@redis:6379/0",
}
TLS_FOLDER = "/etc/prefix-router-tls"  # where the picker's certificate is mounted
each_of_ours = pytest.mark.parametrize("workload", OURS.values(), ids=OURS)


def text_of(config: Manifest) -> str:
    (text,) = config["data"].values()
    return str(text)


SETTINGS: dict[str, Any] = yaml.safe_load(text_of(load(CONFIG)))
DISCOVERY = SETTINGS["discovery"]["kubernetes"]


def check(text: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    (folder / "prefix-router.yaml").write_text(text)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFIX_ROUTER_")}
    command = [PROGRAMS / "prefix-router", "check", "--config", folder / "prefix-router.yaml"]
    return subprocess.run(command, env=clean | variables, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "config",
    [load(CONFIG), *(taken for _, taken in options(CONFIG))],
    ids=["shipped", *(n for n, _ in options(CONFIG))],
)
def test_the_gateway_accepts_the_settings_and_shows_no_secret(tmp_path: Path, config: Manifest) -> None:
    for name, made in (("tls.crt", "server.pem"), ("tls.key", "server.key")):
        (tmp_path / name).symlink_to(certificates().file(made))
    checked = check(text_of(config).replace(TLS_FOLDER, str(tmp_path)), tmp_path, **SECRETS)
    assert checked.returncode == 0, checked.stderr
    assert "of-the-test" not in checked.stdout + checked.stderr


def test_an_option_adds_something() -> None:
    for name, taken in options(CONFIG):
        assert yaml.safe_load(text_of(taken)) != SETTINGS, name


def test_without_the_secret_the_gateway_does_not_start(tmp_path: Path) -> None:
    checked = check(text_of(load(CONFIG)), tmp_path)
    assert checked.returncode == 2
    assert "admin_token" in checked.stdout + checked.stderr


@each_of_ours
def test_the_settings_are_mounted_where_the_program_looks(workload: Manifest) -> None:
    command = container(workload)["command"]
    path = Path(command[command.index("--config") + 1])
    (mount,) = [each for each in container(workload)["volumeMounts"] if each["mountPath"] == str(path.parent)]
    (volume,) = [each for each in pod(workload)["volumes"] if each["name"] == mount["name"]]
    assert set(mount) == {"name", "mountPath", "readOnly"}, "no subPath: a changed ConfigMap would not be seen"
    assert path.name in the("ConfigMap", volume["configMap"]["name"])["data"]


def test_the_pickers_certificate_is_mounted_where_the_option_names_it() -> None:
    assert TLS_FOLDER in {each["mountPath"] for each in container(OURS["picker"])["volumeMounts"]}
    (tls,) = (yaml.safe_load(text_of(taken))["picker"]["tls"] for name, taken in options(CONFIG) if name == "TLS")
    assert tls == {"certificate": f"{TLS_FOLDER}/tls.crt", "key": f"{TLS_FOLDER}/tls.key"}


@each_of_ours
def test_every_other_folder_that_is_written_to_is_a_volume(workload: Manifest) -> None:
    writable = {each["mountPath"] for each in container(workload)["volumeMounts"] if not each.get("readOnly")}
    assert writable == {"/tmp"}


@each_of_ours
def test_the_secret_is_not_part_of_the_manifests(workload: Manifest) -> None:
    assert container(workload)["envFrom"] == [{"secretRef": {"name": "prefix-router"}}]
    assert "kind: Secret" not in "".join(path.read_text() for path in KUBERNETES.rglob("*.yaml"))


@each_of_ours
def test_a_program_knows_every_flag_that_it_is_started_with(workload: Manifest) -> None:
    program, command, *flags = container(workload)["command"]
    asked = subprocess.run([PROGRAMS / program, command, "--help"], capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked.stderr
    for flag in flags:
        if flag.startswith("--"):
            assert re.search(rf"{flag}\b", asked.stdout)


def test_the_gateway_listens_where_the_service_sends() -> None:
    assert SETTINGS["listen"]["port"] == ports(OURS["gateway"])["http"]


def test_the_picker_listens_where_the_pool_asks() -> None:
    command = container(OURS["picker"])["command"]
    assert int(command[command.index("--port") + 1]) == ports(OURS["picker"])["ext-proc"] == SETTINGS["picker"]["port"]
    assert SETTINGS["picker"]["http_port"] == ports(OURS["picker"])["http"]


def test_nobody_listens_on_the_pods_own_loopback() -> None:
    assert SETTINGS["listen"]["host"] == SETTINGS["picker"]["host"] == "0.0.0.0"


@each_of_ours
def test_a_probe_asks_a_path_that_is_served(workload: Manifest) -> None:
    served = Gateway(Settings()).app.openapi()["paths"]
    probes = {name: container(workload)[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")}
    assert probes == {"livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert set(probes.values()) <= served.keys()


def test_the_workers_are_the_engines() -> None:
    (port,) = the("Service", DISCOVERY["service"])["spec"]["ports"]
    assert port["name"] == DISCOVERY["port"]
    assert DISCOVERY["service"] == ENGINES["spec"]["serviceName"]


def test_the_engines_cache_prefixes_say_so_and_publish_where_the_gateway_listens() -> None:
    flags = dict(flag.removeprefix("--").partition("=")[::2] for flag in container(ENGINES)["args"])
    assert flags.keys() >= {"enable-prefix-caching", "enable-prompt-tokens-details"}
    assert int(flags["port"]) == ports(ENGINES)["http"]
    events = yaml.safe_load(flags["kv-events-config"])
    assert events["enable_kv_cache_events"] is True
    assert events["endpoint"] == f"tcp://*:{DISCOVERY['worker']['kv_events']['port']}"
    assert DISCOVERY["worker"]["kv_events"]["port"] == ports(ENGINES)["kv-events"]


def test_the_gateway_knows_how_many_it_is() -> None:
    fewest = the("HorizontalPodAutoscaler", "prefix-router")["spec"]["minReplicas"]
    assert SETTINGS["routing"]["replicas"] == fewest == OURS["picker"]["spec"]["replicas"]


# Rolling out and ending.


@each_of_ours
def test_a_rollout_takes_nobody_away_before_the_next_one_is_ready(workload: Manifest) -> None:
    assert workload["spec"]["strategy"] == {
        "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}
    }  # fmt: skip


@each_of_ours
def test_running_answers_may_end_before_the_pod_is_killed(workload: Manifest) -> None:
    shutdown = SETTINGS["shutdown"]
    spare = pod(workload)["terminationGracePeriodSeconds"] - shutdown["grace_seconds"] - shutdown["drain_seconds"]
    assert spare >= 10
    assert "lifecycle" not in container(workload), "a preStop would come on top"


@each_of_ours
def test_the_end_is_noticed_while_new_connections_are_still_taken(workload: Manifest) -> None:
    probe = container(workload)["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] < SETTINGS["shutdown"]["grace_seconds"]


def test_an_engine_may_finish_whatever_a_gateway_waits_for() -> None:
    assert pod(ENGINES)["terminationGracePeriodSeconds"] >= SETTINGS["shutdown"]["drain_seconds"]


def test_an_engine_leaves_when_its_last_answer_has_ended_and_not_before() -> None:
    python, flag, script = container(ENGINES)["lifecycle"]["preStop"]["exec"]["command"]
    assert (python, flag) == ("python3", "-c")
    with mock_workers(1, "--decode-tokens-per-second", "20") as (worker,):
        here = script.replace("http://127.0.0.1:8000", worker.url).replace("time.sleep(5)", "time.sleep(0)")
        assert worker.url in here
        body = {"model": "mock-model", "prompt": "Good morning", "max_tokens": 80}  # four seconds
        asking = threading.Thread(target=lambda: httpx.post(f"{worker.url}/v1/completions", json=body, timeout=60))
        asking.start()
        until(lambda: httpx.get(f"{worker.url}/stats").json()["started"] == 1)
        assert subprocess.run([sys.executable, "-c", here], timeout=60).returncode == 0
        stats = httpx.get(f"{worker.url}/stats").json()
        assert (stats["running"], stats["aborted"]) == (0, 0)
        asking.join()
