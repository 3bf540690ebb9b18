"""Real processes: how the gateway listens, and how it ends."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from router.processes.listeners import bind
from tests.support.processes import Program, gateway, mock_workers, ready_workers, running, until

BODY = {"model": "mock-model", "messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 30}
CHAT = "/v1/chat/completions"


class Streaming:
    """A client in a thread of its own that reads one stream to its end."""

    def __init__(self, url: str, tokens: int = 30) -> None:
        self.data = b""
        self.cut = False
        self._url, self._body = url, {**BODY, "max_tokens": tokens}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        until(lambda: b"data:" in self.data)

    def _read(self) -> None:
        try:
            with httpx.stream("POST", self._url + CHAT, json=self._body, timeout=60, trust_env=False) as answer:
                for piece in answer.iter_raw():
                    self.data += piece
        except httpx.HTTPError:
            self.cut = True

    def end(self) -> bool:
        """Wait for it; whether it ended as streams end."""
        self._thread.join(timeout=20)
        assert not self._thread.is_alive()
        return not self.cut and self.data.endswith(b"data: [DONE]\n\n")


@contextmanager
def slow(**settings: object) -> Iterator[Program]:
    """A gateway before a worker that takes about two seconds for thirty tokens."""
    with mock_workers(1, "--decode-tokens-per-second", "15") as workers:
        with gateway([workers[0].url], **settings) as program:
            yield program


def status(url: str) -> int:
    return httpx.get(url, trust_env=False, timeout=10).status_code


def test_a_clean_stop_finishes_the_streams_and_tells_balancers_first() -> None:
    """SIGTERM: not ready at once, alive, still serving within the grace; the stream ends whole; exit 0."""
    with slow(**{"shutdown.grace_seconds": 1.5}) as program:
        stream = Streaming(program.url)
        program.process.send_signal(signal.SIGTERM)
        until(lambda: status(program.url + "/readyz") == 503)
        assert status(program.url + "/ping") == 503
        assert status(program.url + "/healthz") == 200
        late = httpx.post(program.url + CHAT, json={**BODY, "stream": False, "max_tokens": 1}, trust_env=False)
        assert late.status_code == 200
        assert program.process.poll() is None
        assert stream.end()
        assert program.process.wait(timeout=20) == 0
    with pytest.raises(httpx.ConnectError):
        status(program.url + "/healthz")


def test_after_the_grace_no_new_connection_is_taken_while_the_stream_goes_on() -> None:
    with slow(**{"shutdown.grace_seconds": 0}) as program:
        stream = Streaming(program.url)
        program.process.send_signal(signal.SIGTERM)
        until(lambda: _refuses(program.url))
        assert not stream.data.endswith(b"[DONE]\n\n")
        assert stream.end()
        assert program.process.wait(timeout=20) == 0


def _refuses(url: str) -> bool:
    try:
        status(url + "/healthz")
    except httpx.HTTPError:
        return True
    return False


def test_streams_that_outlast_the_drain_are_cut() -> None:
    with slow(**{"shutdown.drain_seconds": 1}) as program:
        stream = Streaming(program.url, tokens=1000)
        assert program.stop() == 0
        assert not stream.end()


@pytest.mark.parametrize(("first", "second"), [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
def test_a_second_signal_ends_at_once(first: int, second: int) -> None:
    with slow(**{"shutdown.grace_seconds": 60}) as program:
        stream = Streaming(program.url, tokens=1000)
        program.process.send_signal(first)
        if first == signal.SIGTERM:
            until(lambda: status(program.url + "/readyz") == 503)
        else:
            until(lambda: _refuses(program.url))
        began = time.monotonic()
        program.process.send_signal(second)
        assert program.process.wait(timeout=20) == 0
        assert time.monotonic() - began < 10
        assert not stream.end()


def test_an_interrupt_needs_no_grace_and_finishes_streams() -> None:
    with slow(**{"shutdown.grace_seconds": 60}) as program:
        stream = Streaming(program.url, tokens=15)
        assert program.stop(signal.SIGINT) == 0
        assert stream.end()


def test_idle_connections_do_not_hold_it_up() -> None:
    with running("router", "serve", "--port", "0", settings={"shutdown.grace_seconds": 0}) as program:
        with httpx.Client(trust_env=False) as client:
            assert client.get(program.url + "/healthz").status_code == 200
            assert program.stop() == 0


def serve(*flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "router", "serve", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_a_taken_port_is_exit_1_and_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = serve("--port", str(port))
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr == f"prefix-router: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_a_host_that_is_not_found_is_exit_1_and_one_line() -> None:
    ended = serve("--port", "0", "--host", "no-such-host.invalid")
    assert ended.returncode == 1
    assert ended.stderr.startswith("prefix-router: cannot listen on no-such-host.invalid:0: ")
    assert ended.stderr.count("\n") == 1


def test_port_zero_prints_the_true_address() -> None:
    with running("router", "serve", "--port", "0") as program:
        assert program.url.startswith("http://127.0.0.1:")
        assert not program.url.endswith(":0")
        assert status(program.url + "/healthz") == 200
        program.process.kill()


def has_six() -> bool:
    try:
        bind("::1", 0).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_six(), reason="this machine has no IPv6")
def test_it_listens_on_ipv6_and_prints_brackets() -> None:
    with running("router", "serve", "--port", "0", "--host", "::1") as program:
        assert program.url.startswith("http://[::1]:")
        assert status(program.url + "/healthz") == 200
        program.process.kill()


@pytest.mark.system("openssl")
def test_it_listens_with_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
               "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    tls = {"listen.tls.certificate": str(certificate), "listen.tls.key": str(key), "shutdown.grace_seconds": 0}
    with (
        mock_workers(1) as workers,
        running("router", "serve", "--port", "0", "--worker", workers[0].url, settings=tls) as program,
    ):
        assert program.url.startswith("https://127.0.0.1:")
        with httpx.Client(verify=ssl.create_default_context(cafile=certificate), trust_env=False) as client:
            until(lambda: client.get(program.url + "/readyz").status_code == 200)
            answer = client.post(program.url + CHAT, json=BODY)
            assert (answer.status_code, answer.content[-14:]) == (200, b"data: [DONE]\n\n")
        assert program.stop() == 0


def test_files_that_are_no_certificate_are_a_line_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("not a certificate")
    tls = {f"PREFIX_ROUTER_LISTEN__TLS__{name}": str(tmp_path / "x.pem") for name in ("CERTIFICATE", "KEY")}
    command = [sys.executable, "-m", "router", "serve", "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, env=os.environ | tls)
    assert ended.returncode == 2
    assert ended.stderr.startswith("prefix-router: listen.tls: ")
    assert ended.stderr.count("\n") == 1


def test_the_access_log_is_written_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl"
    with mock_workers(1) as workers, gateway([workers[0].url], **{"log.access": str(path)}) as program:
        for _ in range(3):
            httpx.post(program.url + CHAT, json={**BODY, "max_tokens": 1}, trust_env=False)
        assert program.stop() == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["status"] for line in lines if line["path"] == CHAT] == [200] * 3


# The end, whenever it comes.


def heeds_sigterm(process: "subprocess.Popen[str]") -> bool:
    """It has a handler of its own."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) & 1 << (signal.SIGTERM - 1))
    return False


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc to see it by")
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("later", [0.0, 0.3, 0.7, 1.2])
def test_a_stop_at_any_moment_of_the_start_is_clean(processes: int, later: float) -> None:
    command = [sys.executable, "-m", "router", "serve", "--port", "0", "--processes", str(processes)]
    given = {**os.environ, "PREFIX_ROUTER_SHUTDOWN__GRACE_SECONDS": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=given) as started:
        until(lambda: heeds_sigterm(started))
        time.sleep(later)
        started.terminate()
        assert started.wait(timeout=40) == 0
        assert started.stderr is not None
        assert started.stderr.read() == ""


def ask_in_a_thread(url: str) -> "Future[httpx.Response]":
    answer: Future[httpx.Response] = Future()

    def run() -> None:
        try:
            answer.set_result(httpx.post(url + CHAT, json={**BODY, "stream": False}, timeout=60, trust_env=False))
        except httpx.HTTPError as wrong:
            answer.set_exception(wrong)

    threading.Thread(target=run, daemon=True).start()
    return answer


def queued(url: str) -> float:
    lines = httpx.get(url + "/metrics", trust_env=False).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("prefix_router_queued "))


@contextmanager
def one_at_a_time(processes: int, **settings: object) -> Iterator[Program]:
    flags = ("--decode-tokens-per-second", "15")
    with mock_workers(1, *flags) as workers:
        limited = [{"url": workers[0].url, "max_in_flight": 1}]
        with gateway([], "--processes", str(processes), workers=limited, **settings) as program:
            until(lambda: all(ready_workers(program.url) == 1 for _ in range(24)))  # in whichever process answers
            yield program


@pytest.mark.parametrize("processes", [1, 2])
def test_who_waits_for_a_worker_when_the_end_is_told_is_served(processes: int) -> None:
    with one_at_a_time(processes) as program:
        stream = Streaming(program.url)
        waiting = [ask_in_a_thread(program.url) for _ in range(2)]
        until(lambda: queued(program.url) == 2)
        assert program.stop() == 0
        assert stream.end()
        assert [each.result(timeout=30).status_code for each in waiting] == [200, 200]


@pytest.mark.parametrize("processes", [1, 2])
def test_who_still_waits_when_time_is_up_is_answered(processes: int) -> None:
    with one_at_a_time(processes, **{"shutdown.drain_seconds": 1}) as program:
        stream = Streaming(program.url, tokens=1000)
        waiting = [ask_in_a_thread(program.url) for _ in range(2)]
        until(lambda: queued(program.url) == 2)
        assert program.stop() == 0
        assert not stream.end()
        answers = [each.result(timeout=30) for each in waiting]
        assert [(each.status_code, each.json()["error"]["code"]) for each in answers] == [(503, "no_ready_worker")] * 2


def test_a_connection_that_has_not_asked_yet_is_heard_when_no_new_ones_are_taken() -> None:
    with slow() as program:
        host, port = program.url.removeprefix("http://").split(":")
        stream = Streaming(program.url)
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            status(program.url + "/healthz")  # it was taken before this one
            program.process.send_signal(signal.SIGTERM)
            until(lambda: _refuses(program.url))
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer
        assert stream.end()
        assert program.process.wait(timeout=20) == 0


def test_a_kept_connection_whose_next_request_has_begun_is_heard_too() -> None:
    asked = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s"
    body = json.dumps({**BODY, "stream": False, "max_tokens": 1}).encode()
    whole = asked % (len(body), body)
    with slow() as program:
        host, port = program.url.removeprefix("http://").split(":")
        stream = Streaming(program.url)
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(whole)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
            connection.sendall(whole[:40])
            until(lambda: status(program.url + "/healthz") == 200)  # what was sent before has come by now
            program.process.send_signal(signal.SIGTERM)
            until(lambda: _refuses(program.url))
            connection.sendall(whole[40:])
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert stream.end()
        assert program.process.wait(timeout=20) == 0


def test_within_the_grace_every_answer_is_its_connections_last() -> None:
    with slow(**{"shutdown.grace_seconds": 30}) as program, httpx.Client(trust_env=False, timeout=20) as client:
        plain = {**BODY, "stream": False, "max_tokens": 1}
        assert "connection" not in client.post(program.url + CHAT, json=plain).headers
        program.process.send_signal(signal.SIGTERM)
        until(lambda: status(program.url + "/readyz") == 503)
        for answer in (client.post(program.url + CHAT, json=plain), client.get(program.url + "/healthz")):
            assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(timeout=20) == 0
