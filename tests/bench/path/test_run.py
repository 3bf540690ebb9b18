"""The whole of it, for a moment: real processes, and every request counted at both ends. No timing is judged."""

import shutil
import socket
import sys
from pathlib import Path

import pytest

from bench.path import run as running
from bench.path.cases import CASES
from bench.path.figures import COLUMNS, gather, troubles
from bench.path.peer import Peer
from bench.path.roster import BY_NAME
from bench.path.run import Outcome, Plan, _free_ports, measure

pytestmark = [pytest.mark.system("gcc"), pytest.mark.xdist_group("bench-path")]
NAMES = ("ours", "nginx") if shutil.which("nginx") else ("ours",)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return measure(Plan([BY_NAME[name] for name in NAMES], CASES, 1, 0.4, 0.1, tmp_path_factory.mktemp("work")))


@pytest.mark.timeout(240)
def test_every_case_was_measured_with_every_peer_and_without(outcome: Outcome) -> None:
    assert outcome.failed == {}
    measured = {(run.peer, run.case) for run in outcome.runs}
    assert measured == {(peer, case.name) for peer in ("direct", *NAMES) for case in CASES}


@pytest.mark.timeout(240)
def test_no_request_failed_no_event_was_lost_and_the_upstream_counted_the_same(outcome: Outcome) -> None:
    assert troubles(outcome.runs) == []
    assert all(run.uncounted == 0 and run.errors == {} for run in outcome.runs)


@pytest.mark.timeout(240)
def test_every_column_has_a_figure_of_every_peer(outcome: Outcome) -> None:
    figures = gather(outcome.runs, "ours")
    for name in NAMES:
        assert set(figures.found[name]) == {column.name for column in COLUMNS}
        assert all(figures.found[name][column.name].median > 0 for column in COLUMNS if not column.added)


@pytest.mark.timeout(240)
def test_streams_are_charged_by_the_event(outcome: Outcome) -> None:
    runs = [run for run in outcome.runs if run.case == "sse"]
    assert all(run.events > 0 for run in runs)
    for run in runs:
        if run.cpu_us is not None and run.cpu_share is not None:
            assert run.cpu_us * run.events / 1e6 == pytest.approx(run.cpu_share * run.seconds)


def test_one_that_does_not_start_is_told_with_its_log_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SETTLE_SECONDS", 0.0)
    lame = Peer("lame", "", "", lambda: "sh", lambda program, place: [program, "-c", "echo no such thing; exit 7"])
    found = measure(Plan([lame], CASES[:1], 1, 0.1, 0.0, tmp_path))
    assert found.failed == {"lame": ["it ended with status 7", "no such thing"]}
    assert [run.peer for run in found.runs] == ["direct"]


def test_one_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "START_SECONDS", 0.5)
    monkeypatch.setattr(running, "SETTLE_SECONDS", 0.0)
    mute = Peer("mute", "", "", lambda: "sleep", lambda program, place: [program, "60"])
    found = measure(Plan([mute], CASES[:1], 1, 0.1, 0.0, tmp_path))
    assert found.failed["mute"][0].startswith("no good answer in 0 s: ConnectionRefusedError")


TWICE = """
import http.server, sys
class Twice(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"usage": null} data: [DONE]')
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Twice)
server.handle_request()
server.handle_request()
"""  # as many as are asked to see whether it has started


def test_one_that_ends_later_is_told_in_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SETTLE_SECONDS", 0.0)
    brief = Peer(
        "brief", "", "", lambda: sys.executable, lambda program, place: [program, "-c", TWICE, str(place.port)]
    )
    found = measure(Plan([brief], CASES[:1], 2, 0.1, 0.0, tmp_path))
    assert [line.split(":")[0] for line in found.failed["brief"]] == ["round 1, JSON 2 KB", "round 2, JSON 2 KB"]
    assert [run.peer for run in found.runs] == ["direct", "direct"]


def test_free_ports_are_free_and_differ() -> None:
    ports = _free_ports(3)
    assert len(set(ports)) == 3
    with socket.socket() as one:
        one.bind(("127.0.0.1", ports[0]))
