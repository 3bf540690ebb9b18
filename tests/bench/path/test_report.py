"""What is printed around the tables, and the JSON."""

import json
from collections.abc import Sequence

from bench.path.figures import gather
from bench.path.peers.nginx import NGINX
from bench.path.report import Report, about, as_json, as_text
from bench.path.run import Outcome
from bench.path.runner import Run
from tests.bench.path.conftest import Made


def report(runs: Sequence[Run], **failed: list[str]) -> Report:
    return Report("a machine", "ours", gather(runs, "ours"), Outcome(list(runs), failed), [NGINX])


def test_what_is_not_here_stands_with_how_to_get_it(run: Made) -> None:
    assert "nginx             not here: apt install nginx-light" in as_text(report([run()]))


def test_what_was_measured_is_said_of_each(run: Made) -> None:
    assert "ours              this gateway, default settings" in as_text(report([run()]))


def test_what_failed_stands_with_the_end_of_its_log(run: Made) -> None:
    text = as_text(report([run()], envoy=["it ended with status 1", "cannot bind"]))
    assert text.split("not sound:")[1].split("\n")[1:] == [
        "    envoy failed:", "    it ended with status 1", "    cannot bind",
    ]  # fmt: skip


def test_nothing_is_called_unsound_where_all_is_well(run: Made) -> None:
    assert "not sound" not in as_text(report([run()]))


def test_a_busy_machine_is_told(run: Made) -> None:
    assert "ours waited 30.0% of the time for its core, which others had: trust CPU" in as_text(
        report([run(waited=0.3)])
    )
    assert "trust CPU" not in as_text(report([run(waited=0.01)]))


def test_json_has_every_run_every_figure_and_every_ratio(run: Made) -> None:
    found = json.loads(json.dumps(as_json(report([run(), run("nginx", cpu_us=25.0)]))))
    assert found["times"]["nginx"]["cpu_json_2k"] == {"median": 0.5, "low": 0.5, "high": 0.5, "rounds": 1}
    assert found["found"]["ours"]["cpu_json_2k"]["median"] == 50.0
    assert [each["peer"] for each in found["runs"]] == ["ours", "nginx"]
    assert found["missing"] == {"nginx": "apt install nginx-light"}
    assert found["base"] == "ours"


def test_the_machine_is_named_with_the_number_of_rounds() -> None:
    assert "cores, Linux" in about(5, 2.0)
    assert about(5, 2.0).endswith("medians of 5 rounds of 2 s")
