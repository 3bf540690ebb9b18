"""`prefix-worker mock` as users start it: processes, signals, exit statuses."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
from typing import Any

import httpx
import pytest

from backends import cli
from backends.mock import faults, timing

CHAT = {"messages": [{"role": "user", "content": "a secret prompt"}], "max_tokens": 3}


def get(url: str, body: Any = None) -> httpx.Response:
    with httpx.Client(trust_env=False, timeout=20) as client:
        return client.get(url) if body is None else client.post(url, json=body)


def test_one_line_says_where_it_listens_and_nothing_more_is_ever_said(process: Any) -> None:
    """Not for good requests, not for bad ones: prompts never reach a log."""
    worker = process()
    assert re.fullmatch(r"prefix-worker mock listening on http://127\.0\.0\.1:\d+\n", worker.line)
    assert get(f"{worker.url}/v1/chat/completions", CHAT).status_code == 200
    assert get(f"{worker.url}/v1/chat/completions", {"messages": ["a secret prompt"]}).status_code == 400
    assert worker.end() == (0, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_clean_end_even_with_work_in_progress(process: Any, number: int) -> None:
    worker = process("--fault", "hang")
    with socket.create_connection(("127.0.0.1", worker.port)) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: w\r\ncontent-length: 14\r\n\r\n" + b'{"prompt":"a"}')
        while get(f"{worker.url}/stats").json()["running"] == 0:
            pass
        assert worker.end(number) == (0, "", "")


def test_with_time_to_drain_running_answers_are_finished(process: Any) -> None:
    worker = process("--drain-seconds", "60", "--decode-tokens-per-second", "2")
    body = b'{"prompt":"a","stream":true,"max_tokens":40}'
    with socket.create_connection(("127.0.0.1", worker.port), timeout=20) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: w\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        received = client.recv(65536)
        assert worker.end() == (0, "", "")
        while data := client.recv(65536):
            received += data
    assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_a_taken_port_is_one_clear_line(process: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        status, out, err = process("--port", port).end()
    assert status == 1
    assert out == ""
    assert err == f"prefix-worker: cannot listen on http://127.0.0.1:{port}: Address already in use\n"


def test_a_reset_is_a_reset_on_the_fast_loop_too(process: Any) -> None:
    """With the events before it delivered."""
    worker = process("--fault", "reset=2")
    body = b'{"prompt":"a","stream":true}'
    with socket.create_connection(("127.0.0.1", worker.port), timeout=20) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: w\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while True:
                received += client.recv(65536) or pytest.fail("closed, not reset")
    assert received.count(b"data:") == 2
    stats = get(f"{worker.url}/stats").json()
    assert (stats["started"], stats["aborted"], stats["running"]) == (1, 1, 0)


def test_refusing_works_on_the_fast_loop_too(process: Any) -> None:
    worker = process()
    with httpx.Client(base_url=worker.url, trust_env=False, timeout=20) as client:
        client.post("/faults", json={"refuse": True})
        with pytest.raises(httpx.ConnectError):
            get(f"{worker.url}/health")
        client.post("/faults", json={})
    assert get(f"{worker.url}/health").status_code == 200


def test_help_has_the_costs_the_faults_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["mock", "--help"])
    shown = capsys.readouterr().out
    assert left.value.code == 0
    assert str(timing.__doc__) in shown
    assert str(faults.__doc__) in shown
    assert "prefix-worker mock --port 9001" in shown


def test_all_faults_of_a_command_line_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--port", "x", "--time-scale", "nan", "--max-running", "0", "--fault", "oops", "--bogus", "--model", ""]
    assert cli.main(["mock", *flags]) == 2
    shown = capsys.readouterr().err
    for name in ("--port", "--time-scale", "--max-running", "--fault", "--bogus", "--model"):
        assert name in shown
    assert shown.count("\n") == 6


def test_the_program_runs_without_the_events_extra() -> None:
    """Asked for KV events without pyzmq it says what to install, and exits with 1."""
    code = "import sys; sys.modules['zmq'] = None; from backends.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "mock", "--port", "0", "--kv-events", "tcp://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert done.stderr == "prefix-worker: KV events need pyzmq: pip install 'prefix-router[events]'\n"
