"""How each peer is started: its port, its workers, consistent hashing on the session's header, nothing logged."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.path.peer import Peer, Place
from bench.path.peers import envoy, haproxy, nginx, production_stack
from bench.path.peers.gateway import LOG, OURS, PLAIN, TWO
from bench.path.peers.rust_routers import SGLANG_ROUTER, SMG, VLLM_ROUTER
from bench.path.roster import BASE, BY_NAME, DIRECT, ROSTER


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(port=5000, spare_port=5001, workers=(6000, 6001), folder=tmp_path)


def test_names_are_unique_and_the_base_is_one_of_them() -> None:
    assert len(BY_NAME) == len(ROSTER)
    assert BASE in BY_NAME
    assert DIRECT not in BY_NAME


@pytest.mark.parametrize("peer", ROSTER, ids=lambda peer: peer.name)
def test_every_peer_is_told_its_port_and_both_workers(peer: Peer, place: Place) -> None:
    command = peer.command("program", place)
    said = " ".join([*command, *(path.read_text() for path in place.folder.iterdir())])
    assert command[0] == "program"
    assert "5000" in said
    assert "6000" in said
    assert "6001" in said


@pytest.mark.parametrize("peer", ROSTER, ids=lambda peer: peer.name)
def test_who_is_missing_says_how_to_get_it(peer: Peer) -> None:
    assert peer.what
    assert peer.get or peer.find() is not None


@pytest.mark.parametrize(("peer", "log"), [(OURS, "none"), (LOG, "access.log"), (PLAIN, "none"), (TWO, "none")])
def test_the_gateway_has_its_defaults_but_for_the_place_of_the_access_log(peer: Peer, log: str, place: Place) -> None:
    settings = {name: value for name, value in peer.environment.items() if name.startswith("PREFIX_ROUTER_")}
    assert settings == {"PREFIX_ROUTER_LOG__ACCESS": log}
    assert peer.command("python", place)[1:4] == ["-m", "router", "serve"]


def test_only_two_processes_have_all_cores(place: Place) -> None:
    assert [peer.name for peer in ROSTER if not peer.pinned] == ["ours-2"]
    assert TWO.command("python", place)[-2:] == ["--processes", "2"]


def test_a_log_that_grows_is_emptied() -> None:
    assert LOG.emptied == ("access.log",)


def test_nginx_hashes_the_session_and_keeps_connections(place: Place) -> None:
    text = nginx.configuration(place)
    assert "hash $http_x_session_id consistent;" in text
    assert "keepalive 1024;" in text
    assert "access_log off;" in text


def test_haproxy_hashes_the_session_with_one_thread(place: Place) -> None:
    text = haproxy.configuration(place)
    assert "balance hdr(x-session-id)" in text
    assert "nbthread 1" in text


def test_envoy_hashes_the_session_on_a_ring_with_one_thread(place: Place) -> None:
    command = envoy.command("envoy", place)
    (cluster,) = json.loads(Path(command[2]).read_text())["static_resources"]["clusters"]
    assert cluster["lb_policy"] == "RING_HASH"
    assert command[command.index("--concurrency") + 1] == "1"


@pytest.mark.parametrize(
    ("peer", "policy"), [(VLLM_ROUTER, "consistent_hash"), (SGLANG_ROUTER, "cache_aware"), (SMG, "cache_aware")]
)
def test_the_rust_routers_have_the_policy_that_is_compared(peer: Peer, policy: str, place: Place) -> None:
    command = peer.command("python", place)
    assert command[command.index("--policy") + 1] == policy
    assert command[command.index("--prometheus-port") + 1] == "5001"


def test_production_stack_is_only_looked_for_where_it_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(production_stack.FOLDER, raising=False)
    assert production_stack.find() is None
    program = tmp_path / "vllm-router"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv(production_stack.FOLDER, str(tmp_path))
    assert production_stack.find() == str(program)


@pytest.mark.system("nginx")
def test_nginx_takes_its_configuration(place: Place) -> None:
    program = shutil.which("nginx")
    assert program
    done = subprocess.run([*nginx.command(program, place), "-t"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(haproxy.HAPROXY.find() is None, reason="a peer that is only compared with")
def test_haproxy_takes_its_configuration(place: Place) -> None:
    program = haproxy.HAPROXY.find()
    assert program
    done = subprocess.run([*haproxy.command(program, place), "-c"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
