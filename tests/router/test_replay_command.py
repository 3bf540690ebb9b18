"""The command: its flags, its files, its faults."""

import argparse
import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from router import replay_plot
from router.core.fingerprint import fingerprint
from router.layers import SettingsError
from router.replay_command import add
from tests.support.replays import conversations, written

Printed = pytest.CaptureFixture[str]
TRACE = written(conversations(10, 5))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "talk.jsonl"
    path.write_bytes(TRACE)
    return str(path)


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add(parser.add_subparsers(dest="command", required=True))
    options = parser.parse_args(["replay", *arguments])
    result: int = options.run(options)
    return result


def said(capsys: Printed, *arguments: str) -> Any:
    assert run(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def faults(*arguments: str) -> list[str]:
    with pytest.raises(SettingsError) as wrong:
        run(*arguments)
    return wrong.value.faults


def test_the_usual_policies_are_compared(trace: str, capsys: Printed) -> None:
    found = said(capsys, trace, "--workers", "2")
    assert list(found["policies"]) == [
        "reference", "prefix_cost", "prefix_bounded", "prefix_aware", "least_work", "least_outstanding", "round_robin",
        "random",
    ]  # fmt: skip
    assert (found["trace"], found["workers"], found["replicas"], found["busy"]) == ("talk.jsonl", 2, 1, 0.5)


def test_people_get_a_table(trace: str, capsys: Printed) -> None:
    assert run(trace, "--workers", "2", "--policy", "prefix_cost", "--policy", "random", "--seeds", "2") == 0
    out = capsys.readouterr().out
    assert "talk.jsonl: 50 prompts, 2 workers" in out
    assert "prefix_cost" in out


def test_gzip_is_known_by_its_bytes(tmp_path: Path, capsys: Printed) -> None:
    path = tmp_path / "unusual.name"
    path.write_bytes(gzip.compress(TRACE))
    assert said(capsys, str(path), "--workers", "2", "--policy", "random")["prompts"] == 50


def test_a_trace_may_come_on_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TRACE)))
    assert said(capsys, "-", "--workers", "2", "--policy", "random", "--limit", "30")["prompts"] == 30


def test_the_made_trace_needs_no_file(capsys: Printed) -> None:
    found = said(capsys, "sharedprefix", "--limit", "300", "--workers", "2", "--policy", "prefix_cost")
    assert found["policies"]["prefix_cost"]["hit_share"] > 0.5


def test_an_access_log_is_replayed(tmp_path: Path, capsys: Printed) -> None:
    lines = []
    for at in range(40):
        text = f"conversation {at % 4} ".encode() * (100 + at)
        stamp = f"2026-03-01T00:00:{at:02}.000Z"
        hashes = fingerprint(text, 0).hashes
        lines.append(
            {"time": stamp, "request_id": str(at), "worker": "w", "prompt_tokens": len(text) // 4, "hashes": hashes}
        )
    path = tmp_path / "access.log"
    path.write_bytes(written(lines))
    found = said(capsys, str(path), "--workers", "2", "--policy", "prefix_cost", "--busy", "0.1")
    assert found["policies"]["prefix_cost"]["hit_share"] > 0.8


def test_every_flag_is_heard(trace: str, capsys: Printed) -> None:
    found = said(
        capsys, trace, "--workers", "3", "--replicas", "2", "--no-share", "--share-lag", "0.1", "--poll", "0",
        "--busy", "0.2,0.4", "--blocks", "50", "--seed", "7", "--speeds", "1,1,0.5", "--told", "--leave", "--no-usage",
        "--copies", "2", "--shared-head", "--exact-tokens", "--policy", "prefix_cost:factor=2",
    )  # fmt: skip
    assert (found["replicas"], found["seed"], found["change"]) == (2, 7, "leave")
    assert [load["busy"] for load in found["loads"]] == [0.2, 0.4]
    assert "after_change" in found["policies"]["prefix_cost:factor=2"]


def test_a_fleet_is_given_as_much_more_to_do(trace: str, capsys: Printed) -> None:
    found = said(
        capsys, trace, "--workers", "6", "--replicas", "3", "--copies", "3", "--scale", "0.5,1",
        "--table-hashes", "5000", "--policy", "prefix_cost",
    )  # fmt: skip
    assert [(load["busy"], load["scale"]) for load in found["loads"]] == [(None, 0.5), (None, 1.0)]
    assert found["copies"] == 3
    assert found["policies"]["prefix_cost"]["requests"] == 135


def test_a_plain_trace_is_played_once_unless_copies_are_asked_for(trace: str, capsys: Printed) -> None:
    found = said(capsys, trace, "--workers", "8", "--scale", "1", "--policy", "random")
    assert (found["copies"], found["policies"]["random"]["requests"]) == (1, 45)


def test_a_scale_of_nothing_is_refused() -> None:
    assert faults("t", "--scale", "0,1")[0] == "--scale: expected numbers above 0, found 0"


def test_a_load_is_given_one_way(trace: str, capsys: Printed) -> None:
    with pytest.raises(SystemExit) as left:
        run(trace, "--busy", "0.5", "--scale", "2")
    assert left.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


def test_capacity_is_searched_for(trace: str, capsys: Printed) -> None:
    found = said(capsys, trace, "--workers", "1", "--join", "--capacity", "--policy", "least_work", "--progress")
    assert found["busy"] is None
    assert found["policies"]["least_work"]["capacity"] > 0


def test_a_picture_is_drawn_at_the_end(trace: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Path] = []
    monkeypatch.setattr(replay_plot, "check", lambda path: None)
    monkeypatch.setattr(replay_plot, "draw", lambda path, plan, load: drawn.append(path))
    said(capsys, trace, "--workers", "2", "--policy", "random", "--plot", "picture.png")
    assert drawn == [Path("picture.png")]


def test_every_bad_number_is_told_at_once() -> None:
    found = faults(
        "nowhere", "--workers", "1", "--replicas", "0", "--busy", "0.5,1.5", "--speeds", "1,0", "--seeds", "-1",
        "--poll", "-1", "--leave", "--limit", "0", "--table-hashes", "0",
    )  # fmt: skip
    assert [fault.split(":")[0] for fault in found] == [
        "--replicas", "--seeds", "--limit", "--table-hashes", "--busy", "--speeds", "--speeds", "--poll", "--leave",
    ]  # fmt: skip


@pytest.mark.parametrize("flag", ["--busy", "--scale", "--speeds"])
def test_what_is_no_number_is_refused(flag: str, capsys: Printed) -> None:
    with pytest.raises(SystemExit) as left:
        run("t", flag, "much")
    assert left.value.code == 2
    assert "expected numbers with commas between, found 'much'" in capsys.readouterr().err


def test_a_policy_that_is_not_there_is_told(trace: str) -> None:
    assert "'nearest' is no policy" in faults(trace, "--policy", "nearest")[0]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert faults(str(tmp_path / "none")) == [f"{tmp_path / 'none'}: No such file or directory"]
    assert "directory" in faults(str(tmp_path))[0]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (b"", "the trace is empty"),
        (b"hello\n", "line 1: not JSON"),
        (TRACE + b"{}\n", "line 51: "),
        (gzip.compress(TRACE)[:-20], "damaged gzip"),
        (gzip.compress(TRACE)[:40] + b"\xff" * 40, "damaged gzip"),
        (b"\x1f\x8bno gzip at all", ": "),
        (b'{"request_id": "a", "time": "x", "worker": "w", "prompt_tokens": 9}\n', "set log.hashes: true"),
    ],
    ids=["empty", "no JSON", "no row", "cut", "bad end", "bad head", "no hashes"],
)
def test_a_file_that_is_no_trace_is_told_with_its_name_and_line(tmp_path: Path, held: bytes, expected: str) -> None:
    path = tmp_path / "held"
    path.write_bytes(held)
    (fault,) = faults(str(path))
    assert fault.startswith(f"{path}: ")
    assert expected in fault
