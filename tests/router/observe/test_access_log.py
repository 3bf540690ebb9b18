"""One JSON line a request, written by a thread, so that no reader of the log stops a request."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.events import Finished
from router.observe import access_log
from router.observe.access_log import AccessLog
from router.observe.bus import Bus

BARE = {"time", "request_id", "path", "model", "status"}


def done(name: str = "r", **fields: Any) -> Finished:
    return Finished(name, "/v1/chat/completions", "m", 200, **fields)


def lines(data: str | bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A log that is read by hand: its path and the reading end."""
    path = tmp_path / "log.fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield path, reader
    finally:
        with contextlib.suppress(OSError):
            os.close(reader)


def read_until(reader: int, holds: Callable[[bytes], bool]) -> bytes:
    data, end = b"", time.monotonic() + 10
    while not holds(data):
        assert time.monotonic() < end, "it never came"
        try:
            data += os.read(reader, 1 << 20)
        except BlockingIOError:
            time.sleep(0.01)
    return data


def written(bus: Bus, path: Path, *events: Finished) -> list[dict[str, Any]]:
    log = AccessLog(bus, str(path))
    for event in events:
        bus.emit(event)
    log.close()
    return lines(path.read_text())


def test_a_request_is_one_line_with_its_facts(bus: Bus, tmp_path: Path) -> None:
    event = done(worker="w", reason="home", policy="prefix_cost", tries=1, prompt_tokens=9, seconds=0.5, stream=True)
    (line,) = written(bus, tmp_path / "log", event)
    assert set(line) == BARE | {"worker", "reason", "policy", "tries", "prompt_tokens", "seconds", "stream"}
    assert (line["status"], line["worker"], line["seconds"]) == (200, "w", 0.5)


def test_what_never_was_is_left_out(bus: Bus, tmp_path: Path) -> None:
    (line,) = written(bus, tmp_path / "log", done())
    assert set(line) == BARE


def test_the_time_is_that_of_the_wall_to_the_millisecond(bus: Bus, tmp_path: Path) -> None:
    (line,) = written(bus, tmp_path / "log", done())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])


def test_a_fact_has_no_field_for_prompt_text_or_keys() -> None:
    held = set(Finished.__struct_fields__)
    assert not held & {"prompt", "text", "body", "messages", "headers", "api_key", "key", "authorization"}


def test_a_model_name_cannot_forge_a_line(bus: Bus, tmp_path: Path) -> None:
    event = Finished("r", "/p", 'x"}\n{"forged": 1', 404)
    (line,) = written(bus, tmp_path / "log", event)
    assert line["model"] == 'x"}\n{"forged": 1'


def test_a_file_is_added_to_and_not_for_all_to_read(bus: Bus, tmp_path: Path) -> None:
    path = tmp_path / "log"
    written(bus, path, done("first"))
    assert [line["request_id"] for line in written(Bus(), path, done("second"))] == ["first", "second"]
    assert path.stat().st_mode & 0o007 == 0


def test_lines_keep_their_order(bus: Bus, tmp_path: Path) -> None:
    events = [done(f"r{at}") for at in range(1000)]
    assert [line["request_id"] for line in written(bus, tmp_path / "log", *events)] == [e.request_id for e in events]


@pytest.mark.parametrize("where", ["stderr", "stdout"])
def test_it_goes_to_the_standard_streams(bus: Bus, where: str, capfd: pytest.CaptureFixture[str],
                                         monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    number = {"stdout": 1, "stderr": 2}[where]
    with os.fdopen(os.dup(number), "w") as own:
        monkeypatch.setattr(sys, where, own)
        log = AccessLog(bus, where)
        bus.emit(done())
        log.close()
        monkeypatch.undo()
    shown = capfd.readouterr()
    assert [line["request_id"] for line in lines(shown.out if where == "stdout" else shown.err)] == ["r"]


def test_none_writes_nothing_and_has_no_thread(bus: Bus, capfd: pytest.CaptureFixture[str]) -> None:
    log = AccessLog(bus, "none")
    bus.emit(done())
    assert log._writer is None
    log.close()
    assert capfd.readouterr() == ("", "")


def test_lines_come_without_closing(bus: Bus, pipe: tuple[Path, int]) -> None:
    path, reader = pipe
    log = AccessLog(bus, str(path))
    bus.emit(done())
    assert len(lines(read_until(reader, lambda data: data.endswith(b"\n")))) == 1
    log.close()


def test_a_slow_reader_stops_nobody_and_what_it_missed_is_told(
    bus: Bus, pipe: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "MOST_PENDING", 5000)
    path, reader = pipe
    log = AccessLog(bus, str(path))
    for at in range(5000):
        bus.emit(done(f"first-{at}"))
    deadline = time.monotonic() + 10
    while log._lines:  # they are taken to be written, and the pipe holds but a part of them
        assert time.monotonic() < deadline
        time.sleep(0.01)
    began = time.monotonic()
    for at in range(6000):
        bus.emit(done(f"second-{at}"))
    assert time.monotonic() - began < 5, "nobody waits for the reader"
    data = read_until(reader, lambda data: b"dropped_lines" in data and data.endswith(b"\n"))
    assert [line["dropped_lines"] for line in lines(data) if "dropped_lines" in line] == [1000]
    assert len(lines(data)) == 10_001
    log.close()


def test_a_reader_that_is_gone_stops_nobody(bus: Bus, pipe: tuple[Path, int]) -> None:
    path, reader = pipe
    log = AccessLog(bus, str(path))
    os.close(reader)
    bus.emit(done())
    deadline = time.monotonic() + 10
    while log._file is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for _ in range(100):
        bus.emit(done())
    log.close()


def test_closing_twice_is_as_good_as_once(bus: Bus, tmp_path: Path) -> None:
    log = AccessLog(bus, str(tmp_path / "log"))
    log.close()
    log.close()


@given(sizes=st.lists(st.integers(1, 300), max_size=30), most=st.integers(50, 200))
def test_what_is_written_at_once_is_whole_lines_within_the_bound(sizes: list[int], most: int) -> None:
    lines = [b"x" * (size - 1) + b"\n" for size in sizes]
    made = list(access_log.batches(lines, most))
    assert b"".join(made) == b"".join(lines)
    assert all(not data or data.endswith(b"\n") for data in made)
    assert all(len(data) <= most or data.count(b"\n") == 1 for data in made)
    assert list(access_log.batches(lines, None)) == [b"".join(lines)]


def test_lines_of_several_processes_on_one_pipe_stay_whole(tmp_path: Path) -> None:
    """A pipe that is full takes up to `PIPE_BUF` bytes in one piece, and cuts what is longer."""
    write = """
import sys
from router.events import Finished
from router.observe.access_log import AccessLog
from router.observe.bus import Bus
bus = Bus()
log = AccessLog(bus, "stdout", shared=True)
for at in range(3000):
    bus.emit(Finished(f"{sys.argv[1]}-{at}", "/p" * (at % 100), "m", 200))
log._stop.set()
log._writer.join()
"""
    reader, writer = os.pipe()
    writers = [subprocess.Popen([sys.executable, "-c", write, str(at)], stdout=writer) for at in range(3)]
    os.close(writer)
    with os.fdopen(reader, "rb") as read:
        data = b"".join(iter(lambda: read.read1(3000), b""))
    assert [each.wait() for each in writers] == [0, 0, 0]
    seen = [line["request_id"] for line in lines(data)]
    assert len(seen) == 9000
    for at in range(3):
        assert [name for name in seen if name.startswith(f"{at}-")] == [f"{at}-{n}" for n in range(3000)]


def test_a_line_speaks_to_no_terminal_and_stays_json(bus: Bus, tmp_path: Path) -> None:
    wicked = "a\x1b[31m\x9b1m\u2028\u202e\r\n é"
    path = tmp_path / "log"
    [line] = written(bus, path, done(tenant=wicked))
    assert line["tenant"] == wicked
    assert path.read_text().removesuffix("\n").isprintable()
    assert "é" in path.read_text()
