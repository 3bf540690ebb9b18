"""How figures are shown."""

import json
from typing import Any

import pytest

from router.replay.figures import NUMBERS, Figures
from router.replay.simulate import Setup
from router.replay_run import Load, Outcome, Plan
from router.replay_table import Watch, print_json, show

FIGURES = Figures(900, 0.512345678, 0.2, 123.4, 260.0, 0.75, 0.98765, 1.08, 0.71, {"warm": 800, "cold": 100})
SPREAD = dict.fromkeys(NUMBERS, (0.97, 0.99))
Printed = pytest.CaptureFixture[str]


def plan(**more: Any) -> Plan:
    return Plan(**{"trace": "talk.jsonl.gz", "setup": Setup(replicas=2), **more})


def load(busy: float | None = 0.7, reached: float = 0.71, **more: Any) -> Load:
    outcome = Outcome(FIGURES, SPREAD, **more)
    return Load(busy, 3.25, reached, {"reference": outcome, "prefix_cost:factor=2": outcome})


def test_the_table_has_a_row_a_policy(capsys: Printed) -> None:
    show(plan(), 1000, [load()])
    out = capsys.readouterr().out
    assert "talk.jsonl.gz: 1,000 prompts, 8 workers, 2 router replicas" in out
    assert "prefill busy 71% with the reference, at 3.25 times the trace's own rate\n" in out
    (row,) = [line for line in out.splitlines() if line.startswith("prefix_cost:factor=2")]
    assert row.split()[1:] == ["0.51", "0.20", "123", "260", "75.0%", "98.8%", "1.08", "71%"]


def test_lines_of_the_table_fit(capsys: Printed) -> None:
    show(plan(seeds=3, setup=Setup(change="leave")), 1000, [load(after=FIGURES)])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 120
    assert "after leave: cached" in out
    assert " 1.0 " in out
    assert "mean of 3 seeds" in out


def test_a_load_that_was_not_reached_is_said(capsys: Printed) -> None:
    show(plan(), 1000, [load(reached=0.4)])
    assert "70% was asked" in capsys.readouterr().out


def test_capacity_is_a_column_of_its_own(capsys: Printed) -> None:
    show(plan(), 1000, [load(None, capacity=2.875)])
    out = capsys.readouterr().out
    assert "with 95% inside the target" in out
    assert "2.88" in out


def test_a_load_by_the_traces_own_rate_and_its_copies_are_said(capsys: Printed) -> None:
    show(plan(copies=5), 1000, [Load(None, 2.5, None, {"random": Outcome(FIGURES, SPREAD)})])
    out = capsys.readouterr().out
    assert "1,000 prompts in 5 copies, 8 workers" in out
    assert "\nat 2.50 times the trace's own rate\n" in out
    assert "carries" not in out


def test_the_json_has_the_promised_keys(capsys: Printed) -> None:
    print_json(plan(seed=5), 1000, [load()])
    said = json.loads(capsys.readouterr().out)
    assert {"trace", "workers", "replicas", "busy", "seed", "policies"} <= set(said)
    assert (said["trace"], said["workers"], said["replicas"], said["busy"], said["seed"]) == (
        "talk.jsonl.gz",
        8,
        2,
        0.7,
        5,
    )
    figures = said["policies"]["reference"]
    promised = {"requests", *NUMBERS[:-1], "reasons", "spread", "tenths"}
    assert promised <= set(figures)
    assert figures["reasons"] == {"warm": 800, "cold": 100}
    assert figures["ttft_mean"] == 0.51235
    assert "loads" not in said


def test_several_loads_are_all_in_the_json(capsys: Printed) -> None:
    print_json(plan(), 1000, [load(0.3), load(0.7, after=FIGURES, capacity=1.0)])
    said = json.loads(capsys.readouterr().out)
    assert said["busy"] == 0.3
    assert [each["busy"] for each in said["loads"]] == [0.3, 0.7]
    assert said["loads"][1]["policies"]["reference"]["after_change"]["requests"] == 900
    assert said["loads"][1]["policies"]["reference"]["capacity"] == 1.0


def test_without_a_terminal_there_is_no_bar(capsys: Printed) -> None:
    with Watch() as watch:
        assert watch.begin("random", 10) is None
    assert capsys.readouterr() == ("", "")


def test_a_bar_that_is_asked_for_is_on_standard_error(capsys: Printed) -> None:
    with Watch(asked=True) as watch:
        tell = watch.begin("least_work", 500)
        assert tell is not None
        tell(250)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "least_work" in captured.err
