"""Keys, tokens, passwords and prompts stand in no log, metric, page or error; and nobody writes into a log but us."""

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.observe.own_log import OneLine
from tests.support.client import CHAT, get, post
from tests.support.gateway import Stage, ask, eventually
from tests.support.processes import mock_workers, until
from tests.support.worker import reply

SECRETS = {
    "a caller's key": "c4ller-key", "a key given as its digest": "d1gest-key",
    "its digest": sha256(b"d1gest-key").hexdigest(), "the admin token": "adm1n-token",
    "a worker's key": "w0rker-key", "a password in a worker's URL": "p4ss-of-worker",
    "its user": "us3r-of-worker", "the password of the share": "p4ss-of-share", "a wrong key": "wr0ng-key",
    "a wrong token": "wr0ng-token", "a prompt": "the prompt that nobody may read", "an answer": "the answer of nobody",
}  # fmt: skip
ADMIN = {"authorization": f"Bearer {SECRETS['the admin token']}"}
MINE = {"authorization": "Bearer " + SECRETS["a caller's key"]}


def hidden_in(shown: dict[str, str]) -> list[tuple[str, str]]:
    return [(what, where) for where, text in shown.items() for what, secret in SECRETS.items() if secret in text]


def settings(workers: list[str], log: Path) -> dict[str, Any]:
    user, password = SECRETS["its user"], SECRETS["a password in a worker's URL"]
    return {
        "listen": {"port": 0, "processes": 2},
        "workers": [
            {"url": workers[0], "api_key": SECRETS["a worker's key"]},
            workers[1].replace("http://", f"http://{user}:{password}@"),
            f"http://{user}:{password}@127.0.0.1:1/",
            {"url": "https://127.0.0.1:2", "api_key": SECRETS["a worker's key"]},
        ],
        "routing": {"policy": "tests.support.blurting"},
        "auth": {"api_keys": [SECRETS["a caller's key"], {"tenant": "red", "sha256": SECRETS["its digest"]}]},
        "admin_token": SECRETS["the admin token"],
        "share": f"redis://someone:{SECRETS['the password of the share']}@127.0.0.1:1/0",
        "log": {"access": str(log), "level": "debug"},
        "health": {"interval_seconds": 0.2},
        "shutdown": {"grace_seconds": 0},
    }  # fmt: skip


def requests(http: httpx.Client) -> Iterator[httpx.Response]:
    """Good ones, bad ones, and ones that fail in the gateway itself."""
    prompt = SECRETS["a prompt"]
    good = {"model": "mock-model", "messages": [{"role": "user", "content": prompt}], "max_tokens": 1}
    failing = {**good, "messages": [{"role": "user", "content": f"fail: {prompt}"}]}
    for key in ("a caller's key", "a key given as its digest", "a wrong key"):
        shown = {"authorization": f"Bearer {SECRETS[key]}"}
        for body in (
            good,
            failing,
            {**good, "stream": True},
            {**good, "model": "none"},
            {**good, "max_tokens": prompt},
        ):
            yield http.post(CHAT, json=body, headers={**shown, "x-session-id": SECRETS[key]})
        yield http.post(CHAT, content=b'{"broken": "' + prompt.encode(), headers=shown)
        yield http.post(f"{CHAT}?key={SECRETS[key]}", content=b"x" * 10, headers=shown)
        yield http.get(f"/v1/{SECRETS[key]}", headers=shown)
    for path in ("workers", "config", "decisions", "processes"):
        yield http.get(f"/admin/{path}", headers=ADMIN)
        yield http.get(f"/admin/{path}", headers={"authorization": f"Bearer {SECRETS['a wrong token']}"})
    password = SECRETS["a password in a worker's URL"]
    bad = [{"url": f"http://u:{password}/x@w:1"}, {"url": f"http://u:{password}@w:1/?x"},
           {"url": 7, "api_key": password},
           {"url": f"http://u:{password}@w:1", "tls": {"ca": "/dev/null"}}]  # fmt: skip
    for worker in bad:
        yield http.post("/admin/workers", json=worker, headers=ADMIN)
    yield http.post(
        "/admin/workers", json={"url": f"http://u:{password}@127.0.0.1:3", "api_key": password}, headers=ADMIN
    )
    yield http.post("/admin/explain", json=failing, headers=ADMIN)
    for path in ("/", "/docs", "/openapi.json", "/metrics", "/readyz"):
        yield http.get(path)
    yield http.get("/v1/models", headers=MINE)


def test_no_secret_is_told_by_a_gateway_of_several_processes(tmp_path: Path) -> None:
    """All it says at the level debug, with faults of its own, workers that are gone and a share that is not there."""
    config, log, access = tmp_path / "router.yaml", tmp_path / "log", tmp_path / "access"
    with mock_workers(2) as workers, log.open("wb") as errors:
        config.write_text(json.dumps(settings([worker.url for worker in workers], access)))
        process = subprocess.Popen([sys.executable, "-m", "router", "serve", "--config", str(config)],
                                   stdout=subprocess.PIPE, stderr=errors, text=True)  # fmt: skip
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            url = first.rsplit(" ", 1)[1].strip()
            limits = httpx.Limits(max_keepalive_connections=0)
            with httpx.Client(base_url=url, limits=limits, timeout=30, trust_env=False) as http:
                until(lambda: http.get("/readyz").json()["workers_ready"] == 2)
                answers = [answer for _ in range(4) for answer in requests(http)]
            process.terminate()
            assert process.wait(timeout=20) == 0
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
    statuses = {answer.status_code for answer in answers}
    assert {200, 201, 400, 401, 403, 404, 500} <= statuses
    own = log.read_text()
    assert "a fault in the gateway" in own
    assert "Traceback" in own
    assert "builtins.ValueError" in own
    assert len(access.read_text().splitlines()) > 80
    shown = {"its log": own, "the access log": access.read_text(), "its first line": first}
    for at, answer in enumerate(answers):
        asked = f"answer {at}, {answer.request.method} {answer.request.url.path.rpartition('/')[2][:8]}"
        body = "" if "x-router-worker" in answer.headers else answer.text  # a worker's own words are its own
        shown[asked] = f"{answer.headers}{body}"
    assert hidden_in(shown) == []


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_check_shows_no_secret(tmp_path: Path, flags: list[str]) -> None:
    config = tmp_path / "router.yaml"
    config.write_text(json.dumps(settings(["http://a:1", "http://b:1"], tmp_path / "access")))
    command = [sys.executable, "-m", "router", "check", "--config", str(config), *flags]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=True, env=os.environ | {"COLUMNS": "300"}
    )
    assert hidden_in({"out": ended.stdout, "err": ended.stderr}) == []
    assert "********" in ended.stdout


BROKEN = {
    "no YAML": "admin_token: [{s}\nworkers: {s}",
    "YAML with a tab": "admin_token:\t'{s}\n\tx",
    "a token that is none": "admin_token: {{x: {s}}}",
    "a key of another kind": "auth: {{api_keys: [[{s}]]}}",
    "a key with one name too many": "auth: {{api_keys: [{{key: {s}, sha256: {s}}}]}}",
    "a worker's URL": "workers: ['http://u:{s}/x@w:1', 'ftp://u:{s}@w', 'http://u:{s}@w:99999', 'http://u:{s}@w/?a']",
    "a share": "share: 'redis://u:{s}/@w:x/'",
    "a worker's key": 'workers: [{{url: "http://w:1", api_key: "{s}\\n"}}]',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_faults_in_settings_quote_no_secret(tmp_path: Path, text: str) -> None:
    config = tmp_path / "router.yaml"
    config.write_text(text.format(s="adm1n-token"))
    command = [sys.executable, "-m", "router", "check", "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2
    assert ended.stderr.startswith("prefix-router: ")
    assert hidden_in({"out": ended.stdout, "err": ended.stderr}) == []


def test_faults_in_the_environment_quote_no_secret() -> None:
    given = {"PREFIX_ROUTER_AUTH__API_KEYS": "[adm1n-token", "PREFIX_ROUTER_ADMIN_TOKEN": "${NO_SUCH_NAME}"}
    command = [sys.executable, "-m", "router", "check"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, env=os.environ | given)
    assert ended.returncode == 2
    assert ended.stderr.startswith("prefix-router: PREFIX_ROUTER_AUTH__API_KEYS: not YAML")
    assert hidden_in({"out": ended.stdout, "err": ended.stderr}) == []


# Nobody else writes a line.

WICKED = 'w\r\n2026-01-01 00:00:00,000 ERROR forged\x1b]0;t\x07\x1b[31m\x9b1m\u2028\u202e{"forged": 1}'


@pytest.fixture
def own_log() -> Iterator[io.StringIO]:
    """What the gateway's own log would say, as it is written."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(OneLine("%(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


async def test_nothing_from_outside_forges_a_line_or_reaches_a_terminal(
    stage: Stage, own_log: io.StringIO, tmp_path: Path
) -> None:
    """Clients, workers and tenants with names that end lines, and escape sequences of terminals."""
    access = tmp_path / "access"
    wicked = await stage.worker(models=(WICKED, "m"), answer=reply(b"{}", 500, ("x-wicked", "\x9b31m")))
    silent = await stage.worker(models=("m",), healthy=500)
    running = await stage.gateway(
        wicked, silent, ready=False, log={"access": str(access)}, routing={"policy": "tests.support.blurting"},
        auth={"api_keys": [{"tenant": WICKED, "key": "c4ller-key"}]},
    )  # fmt: skip
    stage.headers = [("Authorization", MINE["authorization"])]
    await running.ready(1)
    bodies = [
        {"model": WICKED, "messages": []}, {"model": "m", "messages": [{"role": "user", "content": f"fail {WICKED}"}]},
        {"model": f"no {WICKED}", "messages": []}, {"model": "m", "messages": [{"role": WICKED, "content": WICKED}]},
    ]  # fmt: skip
    for body in bodies:
        for path in (CHAT, f"{CHAT}?x=%0d%0aERROR%20forged%1b[31m", "/v1/messages"):
            headers = [*stage.headers, ("X-Request-Id", "a\tb\x9b31m"), ("X-Session-Id", "\x9b31m")]
            await ask(running.port, post(json.dumps(body).encode(), path, headers))
    await ask(running.port, get("/v1/%1b[31m%0d%0aERROR%20forged"))
    await ask(running.port, post(json.dumps({"url": f"http://w:1/{WICKED}"}).encode(), "/admin/workers"))
    silent.healthy = 200
    await running.ready(2)
    await eventually(lambda: access.read_bytes().count(b"\n") >= 13)
    raw = access.read_text("utf-8")
    for line in raw.splitlines():
        assert line.isprintable(), line
        assert set(json.loads(line)) >= {"time", "request_id", "status"}
    assert any(json.loads(line).get("tenant") == WICKED for line in raw.splitlines()), "JSON still says what was there"
    lines = own_log.getvalue().split("\n")
    assert any("fault in the gateway" in line for line in lines)
    for line in filter(None, lines):
        assert line.isprintable(), line
        assert line.startswith(("DEBUG ", "INFO ", "WARNING ", "ERROR ", "  | ")), line
        assert not line.startswith("ERROR forged")
    assert hidden_in({"its log": own_log.getvalue(), "the access log": raw}) == []


async def test_a_model_whose_name_ends_lines_is_none(stage: Stage) -> None:
    worker = await stage.worker(models=(WICKED, "a\x1b[31m", "m"))
    running = await stage.gateway(worker)
    assert running.seat(worker).models == {"m"}
    for path in ("/v1/models", "/metrics", "/admin/workers"):
        assert b"forged" not in (await ask(running.port, get(path))).body, path
    body = json.dumps({"model": WICKED, "messages": []}).encode()
    assert (await ask(running.port, post(body))).status == 404
