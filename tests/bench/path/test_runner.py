"""One run, and the look whether a proxy answers as it should."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bench.path import runner
from bench.path.cases import BY_NAME
from bench.path.runner import LoadFailedError, Rig, answers

Serve = Callable[[int, bytes], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """The port of a server that gives the same answer to all."""
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, body: bytes) -> int:
        class Same(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing: pytest's output is for results."""

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Same))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return int(servers[-1].server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_who_answers_both_ways_is_well(serve: Serve) -> None:
    assert answers(serve(200, b'{"usage": {}}\n\ndata: [DONE]')) is None


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (503, b"no worker", "status 503: no worker"),
        (200, b"hello", "status 200: hello"),
        (200, b'{"usage": {}}', 'status 200: {"usage": {}}'),
    ],
)
def test_an_answer_that_is_not_one_is_told(status: int, body: bytes, said: str, serve: Serve) -> None:
    assert answers(serve(status, body)) == said


def test_nobody_at_the_port_is_told() -> None:
    assert "Refused" in str(answers(1))


def rig(load: Path, folder: Path) -> Rig:
    return Rig(load, sorted(runner.machine.cores()), 0, folder, seconds=0.2, warm=0.0)


@pytest.mark.system("gcc")
def test_what_the_upstream_counts_beyond_the_answers_is_told(
    built: Callable[[str], Path], serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([{"requests": 100}, {"requests": 107}])
    monkeypatch.setattr(runner, "counts", lambda port: next(looks))
    run = rig(built("load"), tmp_path).run(BY_NAME["one"], serve(200, b"{}"), None, "other", 0)
    assert run.errors == {}
    assert run.uncounted <= 6  # seven at the upstream, and at least one answer
    assert run.cpu_us is None
    assert run.p50_us > 0


@pytest.mark.system("gcc")
def test_a_load_that_finds_nobody_has_failed(
    built: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "counts", lambda port: {"requests": 0})
    with pytest.raises(LoadFailedError, match="Connection refused"):
        rig(built("load"), tmp_path).run(BY_NAME["one"], 1, None, "other", 0)


def test_a_load_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "counts", lambda port: {"requests": 0})
    monkeypatch.setattr(runner, "DRAIN_SECONDS", 0.0)
    monkeypatch.setattr(runner, "SLACK_SECONDS", 0.0)
    hanging = tmp_path / "hanging"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o755)
    with pytest.raises(LoadFailedError, match="it took too long"):
        rig(hanging, tmp_path).run(BY_NAME["one"], 1, None, "other", 0)
