"""Workers that are reached over TLS, and ask who comes."""

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from router.layers import load
from tests.support.certificates import Certificates, certificates
from tests.support.client import post
from tests.support.gateway import Stage, ask, eventually

pytestmark = pytest.mark.system("openssl")


@pytest.fixture
def files() -> Certificates:
    return certificates()


def shown(files: Certificates, client: bool = True) -> dict[str, Any]:
    own = {"certificate": files.file("client.pem"), "key": files.file("client.key")} if client else {}
    return {"ca": files.file("ca.pem"), **own}


@pytest.mark.parametrize("everywhere", [True, False], ids=["for all", "of its own"])
async def test_requests_probes_and_polls_show_the_certificate(
    stage: Stage, files: Certificates, everywhere: bool
) -> None:
    worker = await stage.worker(tls=files.server(demanding=True), key="w0rker")
    given: dict[str, Any] = {"url": worker.url, "api_key": "w0rker"}
    settings: dict[str, Any] = {"signals": {"queue_seconds": 0.05}}
    if everywhere:
        settings["connections"] = {"tls": shown(files)}
    else:
        given["tls"] = shown(files)
    running = await stage.gateway(given, **settings)
    assert (await ask(running.port, post())).status == 200
    await eventually(lambda: worker.scrapes, "its queue was never looked at")
    for seen in (worker.requests, worker.probes, worker.scrapes):
        assert {request.one("authorization") for request in seen} == {b"Bearer w0rker"}
    assert {b"/health", b"/v1/models"} <= {probe.target for probe in worker.probes}


WRONG = {
    "a certificate of nobody we know": ("server", False, {}, "certificate verify failed"),
    "another authority's certificate": ("strange-server", False, {"ca": "ca.pem"}, "certificate verify failed"),
    "it asks who comes": ("server", True, {"ca": "ca.pem"}, "may ask for a client certificate"),
}


@pytest.mark.parametrize(("name", "demanding", "tls", "said"), WRONG.values(), ids=WRONG)
async def test_a_worker_that_is_not_trusted_is_unreachable_and_the_log_says_why_once(
    stage: Stage, files: Certificates, caplog: pytest.LogCaptureFixture,
    name: str, demanding: bool, tls: dict[str, str], said: str,
) -> None:  # fmt: skip
    worker = await stage.worker(tls=files.server(name, demanding=demanding))
    given = {"url": worker.url, "tls": {key: files.file(file) for key, file in tls.items()}}
    with caplog.at_level(logging.WARNING, "router"):
        running = await stage.gateway(given, ready=False, health={"interval_seconds": 0.02})
        probes = running.seats[worker.id].health
        await eventually(lambda: probes.failed_probes > 5)
    assert worker.probes == []
    answer = await ask(running.port, post())
    assert (answer.status, answer.code) == (503, "no_ready_worker")
    told = [record.getMessage() for record in caplog.records if said in record.getMessage()]
    assert len(told) == 1, caplog.text
    assert worker.id in told[0]


async def test_a_worker_that_changes_its_certificate_is_told_of(
    stage: Stage, files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """One that was well before."""
    worker = await stage.worker(tls=files.server())
    given = {"url": worker.url, "tls": shown(files, client=False)}
    running = await stage.gateway(given, health={"interval_seconds": 0.05})
    await worker.refuse()
    worker.tls = files.server("strange-server")
    with caplog.at_level(logging.WARNING, "router"):
        await worker.listen()
        await eventually(lambda: "certificate verify failed" in caplog.text)
    await eventually(lambda: running.state(worker) == "down")
    worker.tls = files.server()
    await worker.refuse()
    await worker.listen()
    await running.ready()


async def test_bad_files_at_the_admin_route_are_a_400(stage: Stage, files: Certificates) -> None:
    running = await stage.gateway(await stage.worker())
    for tls, said in (
        ({"ca": "/no/such/file"}, "tls.ca: there is no file /no/such/file"),
        ({"ca": files.file("not.pem")}, "tls.ca: expected certificates in PEM"),
        ({"certificate": files.file("client.pem")}, "certificate and key: set both or neither"),
    ):
        body = json.dumps({"url": "https://w:1", "tls": tls}).encode()
        answer = await ask(running.port, post(body, "/admin/workers"))
        assert (answer.status, answer.code) == (400, "invalid_request")
        assert said in answer.body.decode()
        assert b"s3cret" not in answer.body
    assert len(running.seats) == 1


async def test_a_worker_added_at_run_time_has_its_own_certificate(stage: Stage, files: Certificates) -> None:
    worker = await stage.worker(tls=files.server(demanding=True))
    running = await stage.gateway()
    body = json.dumps({"url": worker.url, "tls": shown(files)}).encode()
    assert (await ask(running.port, post(body, "/admin/workers"))).status == 201
    await running.ready()
    assert (await ask(running.port, post())).one("x-router-worker") == worker.id


async def test_bad_files_are_faults_before_anything_runs(files: Certificates, tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    config.write_text(json.dumps({
        "connections": {"tls": {"ca": "/no/such/file"}},
        "workers": [{"url": "https://w:1", "tls": {"certificate": files.file("client.pem"),
                                                   "key": files.file("not.pem")}}],
    }))  # fmt: skip
    for command in (["check"], ["serve", "--port", "0"]):
        ended = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-m", "router", *command, "--config", str(config)],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert ended.returncode == 2
        assert "connections.tls.ca: there is no file /no/such/file" in ended.stderr
        assert "workers[0].tls: expected a certificate with its key" in ended.stderr
        assert "s3cret" not in ended.stderr


async def test_other_certificates_count_from_a_reload_on(stage: Stage, files: Certificates) -> None:
    """For requests, probes and polls; nothing of the old trust is left in connections to come."""
    worker = await stage.worker(tls=files.server())
    given = {"workers": [worker.url], "signals": {"queue_seconds": 0.05}, "health": {"interval_seconds": 0.05}}
    running = await stage.gateway(worker, **{k: v for k, v in given.items() if k != "workers"},
                                  connections={"tls": shown(files, client=False)})  # fmt: skip
    assert (await ask(running.port, post())).status == 200
    strange = {**given, "connections": {"tls": {"ca": files.file("strange-ca.pem")}}, "log": {"access": "none"}}
    running.gateway.adopt(*load([("test", strange)], {}))
    await worker.hang_up()
    await eventually(lambda: running.state(worker) == "down")
    seen = len(worker.scrapes)
    await asyncio.sleep(0.3)
    assert len(worker.scrapes) == seen
    assert (await ask(running.port, post())).status == 503
    good = {**strange, "connections": {"tls": shown(files)}}
    running.gateway.adopt(*load([("test", good)], {}))
    await running.ready()
    assert (await ask(running.port, post())).status == 200
    await eventually(lambda: len(worker.scrapes) > seen)
