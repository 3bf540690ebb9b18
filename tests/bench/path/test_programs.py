"""The two programs in C: built once, and counting what is really there."""

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bench.path import programs
from bench.path.requests import request

pytestmark = pytest.mark.system("gcc")

Built = Callable[[str], Path]
Load = Callable[..., dict[str, Any]]
JSON = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
EVENT = b"data: {}\n\n"


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%X\r\n%s\r\n" % (len(part), part) for part in parts)


def stream(events: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(*[EVENT] * events) + b"0\r\n\r\n"


def test_a_program_is_built_once(tmp_path: Path) -> None:
    first = programs.build("upstream", tmp_path)
    made = first.stat().st_mtime_ns
    assert programs.build("upstream", tmp_path) == first
    assert first.stat().st_mtime_ns == made


def test_without_a_compiler_it_is_said_which_would_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "COMPILERS", ("no-such-compiler",))
    with pytest.raises(programs.CannotBuildError, match=r"no-such-compiler .* apt install gcc"):
        programs.build("upstream", tmp_path)


def test_what_the_compiler_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "FLAGS", ("--no-such-flag",))
    with pytest.raises(programs.CannotBuildError, match="no-such-flag"):
        programs.build("upstream", tmp_path)


@pytest.fixture
def upstream(built: Built) -> Iterator[int]:
    """The port of one with five events a stream, one every millisecond."""
    with subprocess.Popen([built("upstream"), "1000", "5", "1"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield int(process.stdout.readline())
        process.kill()


def asked(port: int, *, streamed: bool, method: str = "POST", path: str = "/v1/chat/completions") -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    body = request(0, 2048, stream=streamed).partition(b"\r\n\r\n")[2]
    connection.request(method, path, body if method == "POST" else None)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_the_upstream_answers_with_some_400_bytes_of_json(upstream: int) -> None:
    status, body = asked(upstream, streamed=False)
    assert status == 200
    assert json.loads(body)["choices"][0]["finish_reason"] == "stop"
    assert 380 < len(body) < 420


def test_the_upstream_streams_events_and_a_last_one(upstream: int) -> None:
    _, body = asked(upstream, streamed=True)
    *events, done, rest = body.split(b"\n\n")
    assert (len(events), done, rest) == (5, b"data: [DONE]", b"")
    assert {len(event) + 2 for event in events} <= set(range(180, 220))
    assert all(json.loads(event.removeprefix(b"data: "))["object"] == "chat.completion.chunk" for event in events)


def test_the_upstream_counts_chats_only(upstream: int) -> None:
    asked(upstream, streamed=False)
    asked(upstream, streamed=True)
    asked(upstream, streamed=False, method="GET", path="/health")
    assert asked(upstream, streamed=False, path="/v1/other")[0] == 404
    counted = json.loads(asked(upstream, streamed=False, method="GET", path="/counts")[1])
    assert counted == {"requests": 2, "streams": 1, "events": 6, "broken": 0}


def test_the_upstream_takes_a_body_in_chunks_that_come_slowly(upstream: int) -> None:
    whole = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunks(b'{"stream":', b"false}")
        + b"0\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", upstream), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(whole)):
            connection.sendall(whole[at : at + 1])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")


@pytest.fixture
def load(built: Built, tmp_path: Path) -> Iterator[Load]:
    """The load against a server that answers as it is told, `size` bytes at a time, and then, if asked, hangs up.
    `broken`: what comes on the first three connections, which end after it."""
    listener = socket.create_server(("127.0.0.1", 0))
    file = tmp_path / "requests"
    one = request(0, 2048, stream=True)
    file.write_bytes(len(one).to_bytes(4, "little") + one)

    def serve(answer: bytes, size: int, closes: bool, broken: bytes) -> None:
        for at in count():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    bad = broken and at < 3
                    answer_all(connection, broken if bad else answer, size, closes or bool(bad))
                except OSError:
                    continue  # the load hung up in the middle, as it does with an answer it cannot read

    def answer_all(connection: socket.socket, answer: bytes, size: int, closes: bool) -> None:
        while True:
            left = len(one)
            while left and (got := connection.recv(left)):
                left -= len(got)
            if left:
                return
            for at in range(0, len(answer), size):
                connection.sendall(answer[at : at + size])
            if closes:
                return

    def run(
        answer: bytes, *, events: int = 0, size: int = 65536, closes: bool = False, broken: bytes = b"", ms: int = 600
    ) -> dict[str, Any]:
        threading.Thread(target=serve, args=(answer, size, closes, broken), daemon=True).start()
        port = str(listener.getsockname()[1])
        command = [str(built("load")), port, "1", "0", str(ms), str(events), str(file)]
        said = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout.splitlines()
        assert said[:2] == ["begin", "end"]
        found: dict[str, Any] = json.loads(said[2])
        return found

    yield run
    listener.close()


def no_errors(found: dict[str, Any]) -> bool:
    return not any(found["errors"].values())


def test_the_load_counts_answers_and_times_them(load: Load) -> None:
    found = load(JSON)
    assert found["requests"] > 0
    assert found["all"]["requests"] >= found["requests"]
    assert 0 < found["p50_us"] <= found["p90_us"] <= found["p99_us"] <= found["max_us"]
    assert no_errors(found)
    assert found["reconnects"] == 0


@pytest.mark.parametrize("size", [1, 7, 65536])
def test_the_load_counts_every_event_however_it_is_cut(load: Load, size: int) -> None:
    found = load(stream(4), events=4, size=size)
    assert found["all"]["requests"] > 0
    assert found["all"]["events"] == 4 * found["all"]["requests"]
    assert no_errors(found)


def test_an_event_in_two_chunks_is_one_event(load: Load) -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        + chunks(b"data: {}\n", b"\ndata: {}\n\n")
        + b"0\r\n\r\n"
    )
    found = load(answer, events=2)
    assert found["all"]["events"] == 2 * found["all"]["requests"] > 0
    assert no_errors(found)


def test_lost_events_are_counted(load: Load) -> None:
    found = load(stream(3), events=5)
    assert found["errors"]["lost_events"] == 2 * found["all"]["requests"] > 0


def test_answers_that_are_not_200_are_counted(load: Load) -> None:
    found = load(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
    assert found["errors"]["status"] == found["all"]["requests"] > 0


@pytest.mark.parametrize("broken", [JSON[:-1], JSON[:20], b"SSH-2.0-none\r\n\r\n", stream(1)[:-3]])
def test_an_answer_that_breaks_off_or_is_none_is_counted_and_the_load_goes_on(load: Load, broken: bytes) -> None:
    found = load(JSON, broken=broken)
    assert found["errors"] == {"status": 0, "broken": 3, "lost_events": 0, "unanswered": 0}
    assert found["all"]["requests"] > 0


def test_a_load_whose_answers_all_break_off_ends(load: Load) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        load(JSON[:-1], closes=True, ms=60_000)
    assert "connections broke" in failed.value.stderr


def test_a_connection_that_the_server_says_it_closes_is_opened_anew(load: Load) -> None:
    found = load(b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 2\r\n\r\n{}", closes=True)
    assert no_errors(found)
    assert found["reconnects"] > 0


def test_an_answer_without_a_length_ends_with_the_connection(load: Load) -> None:
    found = load(b"HTTP/1.1 200 OK\r\n\r\n" + EVENT * 2, events=2, closes=True)
    assert found["all"]["events"] == 2 * found["all"]["requests"] > 0
    assert no_errors(found)
