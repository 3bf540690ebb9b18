"""The door: commands, and where their settings come from."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from router import __version__, cli
from router.cli import main
from tests.support.processes import Program, gateway, mock_workers

COMMANDS = ("serve", "demo", "check", "explain")
BODY = b'{"model": "mock-model", "messages": [{"role": "user", "content": "hi"}]}'
FAULTY = """
listen: {port: 99999, colour: red}
workers: ["http://w:1", "ftp://w", {url: "http://x:1", weight: -1}]
queue: {max: many}
nonsense: 1
"""
SECRET = """
workers: [{url: "http://me:hush-1@w:1", api_key: "${HUSH}"}]
auth: {api_keys: [hush-4, {tenant: t, key: hush-5}]}
"""
Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in cli.os.environ if name.startswith("PREFIX_ROUTER_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `serve` would have run with."""
    from router import server

    seen: list[Any] = []
    monkeypatch.setattr(server, "serve", lambda loaded, _: seen.append(loaded) or 0)
    return seen


def leaves(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return int(left.value.code or 0)


def file(folder: Path, text: str) -> str:
    path = folder / "settings.yaml"
    path.write_text(text)
    return str(path)


# The command line.


def test_the_version_is_told(capsys: Printed) -> None:
    assert leaves("--version") == 0
    assert capsys.readouterr().out == f"prefix-router {__version__}\n"


@pytest.mark.parametrize("command", [(), *[(name,) for name in COMMANDS]])
def test_help_has_an_example(command: tuple[str, ...], capsys: Printed) -> None:
    assert leaves(*command, "--help") == 0
    shown = capsys.readouterr().out
    assert "example:" in shown
    assert f"prefix-router {command[0] if command else ''}" in shown.split("example:")[1]


def test_help_names_every_command(capsys: Printed) -> None:
    leaves("--help")
    shown = capsys.readouterr().out
    assert all(f"    {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [(), ("dance",), ("serve", "--port", "x"), ("serve", "--colour"), ("check", "extra"), ("demo", "--seconds")],
)
def test_a_bad_command_line_is_exit_2(arguments: tuple[str, ...], capsys: Printed) -> None:
    assert leaves(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: prefix-router")


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "settings_from", interrupted)
    assert main(["check"]) == 130


# Faults.


def test_every_fault_is_told_with_its_path(tmp_path: Path, capsys: Printed) -> None:
    config = file(
        tmp_path,
        """
listen: {port: 99999, colour: red}
workers: ["http://w:1", "ftp://w", {url: "http://x:1", weight: -1}]
queue: {max: many}
nonsense: 1
""",
    )
    assert main(["check", "--config", config]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert all(line.startswith("prefix-router: ") for line in lines)
    for path in (
        "listen.port: ",
        "listen.colour: ",
        "workers[1].url: ",
        "workers[2].weight: ",
        "queue.max: ",
        "nonsense: ",
    ):
        assert sum(line.startswith(f"prefix-router: {path}") for line in lines) == 1, path
    assert len(lines) == 6


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("routing: {policy: best}", "routing.policy: 'best' is no policy"),
        ("routing: {options: {nothing: 1}}", "routing.options.nothing: there is no such option"),
        ("workers: [{url: 'http://w:1', dialect: klingon}]", "workers[0].dialect: there is no dialect 'klingon'"),
        ("listen: {tls: {certificate: /no/file}}", "listen.tls: certificate and key go together"),
        ("listen: {tls: {key: /no/file}}", "listen.tls: certificate and key go together"),
        ("listen: {tls: {certificate: /no/file, key: /no/file}}", "listen.tls.key: there is no file /no/file"),
        ("listen: {tls: {certificate: /dev/null, key: /no/file}}", "listen.tls.key: there is no file /no/file"),
        ("admin_token: ${NOT_THERE}", "admin_token: the environment has no variable NOT_THERE"),
        ("workers: ['http://w:1', 'http://W:1/v1']", "workers: w:1 is there more than once"),
        ("workers: [{url: 'http://w:1', api_key: 'schlüssel'}]", "workers[0].api_key: expected printable ASCII"),
        ("routing: {shadow: best}", "routing.shadow: 'best' is no policy"),
        ("routing: {shadow: os.path}", "routing.shadow: 'os.path' is no policy"),
        ("share: http://cache", "share: "),
        ("share: 'redis://cache:port'", "share: "),
        ("workers: ['http://w:1', {url: 'http://v:1', kv_events: here}]", "workers[1].kv_events.endpoint: "),
        ("signals: {queue_seconds: -1}", "signals.queue_seconds: "),
        ("routing: {replicas: 0}", "routing.replicas: "),
        ("discovery: {kubernetes: {service: a, port: 0}}", "discovery.kubernetes.port: expected a port's name"),
        (
            "discovery: {kubernetes: {service: a, kubeconfig: /no/file, worker: {dialect: auto}}}",
            "discovery.kubernetes.kubeconfig: there is no file /no/file",
        ),
        ("listen: {processes: 257}", "listen.processes: Input should be less than or equal to 256"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, capsys: Printed, text: str, fault: str) -> None:
    assert main(["check", "--config", file(tmp_path, text)]) == 2
    assert f"prefix-router: {fault}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2", "text", "\t"])
def test_a_file_that_holds_no_settings_is_a_fault(tmp_path: Path, capsys: Printed, text: str) -> None:
    path = file(tmp_path, text)
    assert main(["check", "--config", path]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"prefix-router: --config {path}: ")
    assert err.count("\n") == 1


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path, capsys: Printed) -> None:
    assert main(["serve", "--config", str(tmp_path / "none.yaml")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_fault_of_a_flag_has_its_path_too(capsys: Printed) -> None:
    assert main(["serve", "--worker", "w:1", "--port", "70000", "--policy", "best", "--processes", "-1"]) == 2
    err = capsys.readouterr().err
    for path in ("workers[0].url", "listen.port", "listen.processes"):
        assert f"prefix-router: {path}: " in err


# Where settings come from.


def test_an_empty_file_is_valid(tmp_path: Path, served: list[Any]) -> None:
    assert main(["serve", "--config", file(tmp_path, "")]) == 0
    ((settings, origins),) = served
    assert settings.listen.port == 8080
    assert origins == {}


def test_flags_override_the_environment_which_overrides_the_file(
    tmp_path: Path, served: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = file(tmp_path, "{listen: {port: 1, host: 0.0.0.0}, queue: {max: 1}, routing: {policy: random}}")
    monkeypatch.setenv("PREFIX_ROUTER_LISTEN__PORT", "2")
    monkeypatch.setenv("PREFIX_ROUTER_QUEUE__MAX", "2")
    assert main(["serve", "--config", config, "--port", "3"]) == 0
    ((settings, origins),) = served
    assert (settings.listen.port, settings.queue.max, settings.listen.host) == (3, 2, "0.0.0.0")
    assert settings.routing.policy == "random"
    assert origins["listen.port"] == "command line"
    assert origins["queue.max"] == "environment"
    assert origins["listen.host"] == origins["routing.policy"] == "file"


def test_all_flags_of_serve_count(served: list[Any]) -> None:
    flags = ["--worker", "http://a:1", "--worker", "http://b:1", "--host", "::1", "--port", "0",
             "--policy", "round_robin", "--processes", "1"]  # fmt: skip
    assert main(["serve", *flags]) == 0
    settings = served[0][0]
    assert [worker.url for worker in settings.workers] == ["http://a:1", "http://b:1"]
    assert (settings.listen.host, settings.listen.port, settings.routing.policy) == ("::1", 0, "round_robin")


def test_demo_passes_its_flags_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from router import demo

    seen: list[Any] = []
    monkeypatch.setattr(demo, "demo", lambda *given, **more: seen.append((given, more)) or 0)
    assert main(["demo"]) == 0
    assert main(["demo", "--workers", "5", "--port", "1", "--seconds", "2.5", "--json"]) == 0
    assert seen == [((3, 8080, None), {"as_json": False}), ((5, 1, 2.5), {"as_json": True})]


# check


def test_check_shows_every_setting_and_its_origin(tmp_path: Path, capsys: Printed) -> None:
    assert main(["check", "--config", file(tmp_path, "queue: {max: 7}")]) == 0
    out, err = capsys.readouterr()
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert rows["queue.max"] == ["7", "file"]
    assert rows["routing.policy"] == ['"prefix_cost"', "default"]
    assert err == ""


def test_check_as_json_is_one_object_with_secrets_masked(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSH", "hush-2")
    monkeypatch.setenv("PREFIX_ROUTER_ADMIN_TOKEN", "hush-3")
    config = file(
        tmp_path,
        """
workers: [{url: "http://me:hush-1@w:1", api_key: "${HUSH}"}]
auth: {api_keys: [hush-4, {tenant: t, key: hush-5}]}
""",
    )
    for flags in ([], ["--json"]):
        assert main(["check", "--config", config, *flags]) == 0
        out = capsys.readouterr().out
        assert "hush" not in out
        assert "********" in out
    shown = json.loads(out)
    assert shown["admin_token"] == {"value": "********", "origin": "environment"}
    assert shown["workers[0].url"] == {"value": "http://********@w:1", "origin": "file"}


# explain


@pytest.fixture(scope="module")
def running() -> Iterator[Program]:
    with mock_workers(1) as workers, gateway([worker.url for worker in workers], admin_token="a-token") as program:
        yield program


def test_explain_reads_a_file(running: Program, tmp_path: Path, capsys: Printed) -> None:
    body = tmp_path / "body.json"
    body.write_bytes(BODY)
    assert main(["explain", str(body), "--url", running.url, "--token", "a-token", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["model"] == "mock-model"
    assert said["chosen"] == said["candidates"][0]["worker"]


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_explain_reads_standard_input(
    running: Program, arguments: list[str], capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BODY)))
    monkeypatch.setenv("PREFIX_ROUTER_ADMIN_TOKEN", "a-token")
    assert main(["explain", *arguments, "--url", f"{running.url}/"]) == 0
    assert "reason: cold, policy: prefix_cost" in capsys.readouterr().out


def test_explain_without_the_token_is_refused_in_one_line(
    running: Program, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BODY)))
    assert main(["explain", "--url", running.url]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "ADMIN_TOKEN" in err


def test_explain_where_nobody_listens_is_exit_1_and_one_line(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BODY)))
    assert main(["explain", "--url", "http://127.0.0.1:1"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no gateway answered at http://127.0.0.1:1" in err


def test_explain_of_a_file_that_is_not_there_is_exit_2(tmp_path: Path, capsys: Printed) -> None:
    assert main(["explain", str(tmp_path / "none.json")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_the_gateway_of_these_tests_asks_for_its_token(running: Program) -> None:
    assert httpx.get(f"{running.url}/admin/workers", trust_env=False).status_code == 403
