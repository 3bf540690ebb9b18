"""`prefix-router top` as a command: its flags, and a real gateway watched in a real terminal."""

import argparse
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from fcntl import ioctl
from struct import pack
from termios import TIOCSWINSZ

import httpx
import pytest

from router.cli import main
from router.top import URL, add
from tests.support.processes import Program, gateway, mock_workers

COMMAND = [sys.executable, "-m", "router", "top", "--interval", "0.2"]
Printed = pytest.CaptureFixture[str]


def parsed(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add(parser.add_subparsers())
    return parser.parse_args(["top", *flags])


def test_its_flags_have_useful_defaults() -> None:
    options = parsed()
    assert (options.url, options.interval, options.once, options.json) == (URL, 1.0, False, False)


@pytest.mark.parametrize("interval", ["0", "-1", "soon", "nan", "1e9"])
def test_an_interval_that_is_none_is_exit_2(interval: str, capsys: Printed) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed("--interval", interval)
    assert ended.value.code == 2
    assert "seconds" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://gw", "http://", "http://[::1", "gw"])
def test_an_address_that_is_none_is_exit_2_and_one_line(url: str, capsys: Printed) -> None:
    options = parsed("--url", url, "--once")
    assert options.run(options) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"--url {url}: expected an address such as {URL}" in err


@pytest.fixture(scope="module")
def running() -> Iterator[Program]:
    with mock_workers(2) as workers, gateway([worker.url for worker in workers], admin_token="a-token") as program:
        yield program


def send(program: Program, count: int = 3) -> None:
    body = {"messages": [{"role": "user", "content": "once upon a time " * 100}], "max_tokens": 2}
    for _ in range(count):
        assert httpx.post(f"{program.url}/v1/chat/completions", json=body, trust_env=False).status_code == 200


def test_a_real_gateway_is_told_of_as_json(running: Program, capsys: Printed) -> None:
    send(running)
    assert main(["top", "--url", f"{running.url}/", "--token", "a-token", "--interval", "0.1", "--once", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [worker["state"] for worker in said["workers"]] == ["ready", "ready"]
    assert sum(worker["cached_tokens"] for worker in said["workers"]) > 500
    assert sum(worker["predicted_cached_tokens"] for worker in said["workers"]) > 500
    assert said["policy"] == "prefix_cost"
    assert said["decisions"][0]["worker"] in [worker["id"] for worker in said["workers"]]
    assert "once upon" not in json.dumps(said)


def test_without_its_token_it_is_asked_for(running: Program, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFIX_ROUTER_ADMIN_TOKEN", raising=False)
    assert main(["top", "--url", running.url, "--once"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "--token" in err


class Terminal:
    """A terminal of 80 columns and 24 lines with the command in it."""

    def __init__(self, *flags: str) -> None:
        self._ours, theirs = pty.openpty()
        ioctl(theirs, TIOCSWINSZ, pack("HHHH", 24, 80, 0, 0))
        variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [*COMMAND, *flags], stdin=theirs, stdout=theirs, stderr=theirs, env=variables | {"TERM": "xterm-256color"}
        )
        os.close(theirs)
        self.shown = ""

    def wait_for(self, word: str, seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while word not in self.shown:
            assert time.monotonic() < end, f"{word!r} never came: {self.shown[-2000:]!r}"
            if select.select([self._ours], [], [], 0.2)[0]:
                self.shown += os.read(self._ours, 65536).decode("utf-8", "replace")

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        while True:
            try:
                read = os.read(self._ours, 65536)
            except OSError:  # its end is closed
                break
            if not read:
                break
            self.shown += read.decode("utf-8", "replace")
        return self.process.wait(timeout=20)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(request: pytest.FixtureRequest, running: Program) -> Iterator[Terminal]:
    made = Terminal("--url", running.url, "--token", "a-token")
    yield made
    made.close()


def test_in_a_terminal_it_is_live_and_ctrl_c_ends_it_quietly(terminal: Terminal, running: Program) -> None:
    terminal.wait_for("2 of 2 workers ready")
    send(running, 1)
    terminal.shown = ""
    terminal.wait_for("reasons:")
    terminal.shown = ""
    assert terminal.interrupt() == 130
    assert "Traceback" not in terminal.shown
    assert "\x1b[?1049l" in terminal.shown  # what was on the screen before is back


def test_a_gateway_that_goes_away_is_told_of_and_found_again() -> None:
    with mock_workers(1) as workers:
        with gateway([workers[0].url]) as program:
            terminal = Terminal("--url", program.url)
            try:
                terminal.wait_for("1 of 1 workers ready")
                program.stop()
                terminal.wait_for("trying again")
                port = program.url.rsplit(":", 1)[1]
                terminal.shown = ""
                with gateway([workers[0].url], "--port", port):
                    terminal.wait_for("1 of 1 workers ready")
                    assert terminal.interrupt() == 130
            finally:
                terminal.close()


def test_whoever_reads_a_pipe_may_have_enough(running: Program) -> None:
    """As `| head -n 1` has."""
    flags = ("--url", running.url, "--token", "a-token", "--json")
    with subprocess.Popen([*COMMAND, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["url"] == running.url
        process.stdout.close()
        assert process.wait(timeout=20) == 0
        assert process.stderr.read() == ""
