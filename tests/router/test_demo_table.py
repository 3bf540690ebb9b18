"""Figures of a load, and how they are shown."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from router.demo_client import Answer, Details, Usage
from router.demo_table import Outcome, Screen, as_json, as_table, in_words, percentile, summarise

WORKERS = ["worker-1", "worker-2"]
POOR = Outcome(
    requests=10, errors=0, ttft_p50=0.2, ttft_p90=0.6, cached_share=0.2, output_tokens_per_second=900.0,
    requests_per_worker={"worker-1": 7, "worker-2": 3}, prompt_tokens=20_000, seconds=10.0,
)  # fmt: skip
RICH = replace(POOR, ttft_p50=0.01, cached_share=0.8)


def answer(began: float = 0.0, ttft: float = 0.1, cached: int = 50, worker: str = "worker-1") -> Answer:
    usage = Usage(prompt_tokens=100, completion_tokens=20, prompt_tokens_details=Details(cached))
    return Answer(began=began, ended=began + 1.0, ttft=ttft, worker=worker, usage=usage)


def text_of(*outcomes: Outcome) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(as_table(dict(zip(("random", "prefix_cost"), outcomes, strict=True))))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_shares_rates_and_counts_come_from_all_whole_answers() -> None:
    outcome = summarise([answer(0.0, cached=0), answer(3.0, cached=90, worker="worker-2")], WORKERS)
    assert outcome.cached_share == 0.45
    assert outcome.output_tokens_per_second == 40 / 4.0
    assert outcome.requests_per_worker == {"worker-1": 1, "worker-2": 1}


def test_a_failed_request_counts_as_an_error_and_nowhere_else() -> None:
    failed = Answer(began=0.0, ended=1.0, ttft=9.0, worker="worker-1", error="the connection was cut")
    outcome = summarise([answer(ttft=0.1), failed], WORKERS)
    assert (outcome.requests, outcome.errors, outcome.ttft_p90) == (2, 1, 0.1)


def test_a_worker_that_got_nothing_is_listed() -> None:
    assert summarise([answer()], WORKERS).requests_per_worker["worker-2"] == 0


def test_without_answers_there_are_no_times() -> None:
    outcome = summarise([], WORKERS)
    assert (outcome.ttft_p50, outcome.cached_share, outcome.imbalance) == (None, 0.0, 0.0)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 5), (0.9, 9), (0.0, 1), (1.0, 10)])
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: int) -> None:
    assert percentile([*range(10, 0, -1)], share) == expected


def test_imbalance_is_the_busiest_against_the_mean() -> None:
    assert POOR.imbalance == 1.4


def test_the_json_has_the_promised_keys() -> None:
    said = json.loads(as_json("http://127.0.0.1:8080", {"random": POOR, "prefix_cost": RICH}))
    assert said["url"] == "http://127.0.0.1:8080"
    promised = {
        "requests", "errors", "ttft_p50", "ttft_p90", "cached_share", "output_tokens_per_second", "requests_per_worker",
    }  # fmt: skip
    assert all(promised <= set(figures) for figures in said["policies"].values())


def test_the_table_fits_into_eighty_columns_and_shows_both_policies() -> None:
    shown = text_of(POOR, RICH)
    assert max(map(len, shown.splitlines())) <= 80
    for expected in ("random", "prefix_cost", "200 ms", "10 ms", "20%", "80%", "7 3"):
        assert expected in shown


def test_the_gain_is_said_in_words() -> None:
    said = in_words("prefix_cost", RICH, "random", POOR)
    assert "95% sooner" in said
    assert "4.0 times as much" in said


def test_a_loss_is_not_dressed_up() -> None:
    assert "LATER" in in_words("prefix_cost", POOR, "random", RICH)


def test_no_answers_are_not_compared() -> None:
    assert "cannot be compared" in in_words("prefix_cost", RICH, "random", replace(POOR, ttft_p50=None))


def test_progress_is_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen(quiet_output=False).running("random", 1) as running:
        running.update([])
        running.update([answer()])
    out = capsys.readouterr().out
    assert out == "random: 1/1, first token 100 ms, 50% cached\n"


def test_with_json_people_are_told_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(quiet_output=True).say("Starting")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "Starting\n")
