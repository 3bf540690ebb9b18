"""What a measurement shows."""

import json
from dataclasses import replace

import pytest

from backends.bench_decoding.figures import Difference, Figures, Spread
from backends.bench_decoding.first_token import FirstToken
from backends.bench_decoding.measured import Measured, Setting
from backends.bench_decoding.table import Watch, print_json, show
from tests.backends.bench_decoding.test_measured import SAID
from tests.backends.bench_decoding.test_picture import FIGURES

FIRST = FirstToken(
    prefix=1000, fresh=32, cached=992, cold=Spread((2.0, 2.2)), warm=Spread((0.1, 0.1)), ratio=Spread((20.0, 22.0)),
    same=2, by_cpu=True,
)  # fmt: skip


def measured(figures: Figures = FIGURES) -> list[Measured]:
    return [
        Measured(of=of, batch=batch, mode=mode, figures=figures)
        for of in ("plan", "chat")
        for batch in (1, 4)
        for mode in ("plain", "hydra")
    ]


def test_there_is_a_row_for_every_mode_at_every_batch_of_every_set(capsys: pytest.CaptureFixture[str]) -> None:
    show(Setting(SAID), measured(), None)
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if " 1.00..1.50 " in line]
    assert [row[0] for row in rows] == ["1", "hydra", "4", "hydra"] * 2
    assert all("1.20" in row and "0/60" in row for row in rows)
    assert shown.index("\nplan\n") < shown.index("\nchat\n")
    assert "plain's CPU seconds" in shown


def test_without_cpu_seconds_they_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    wall_only = replace(FIGURES, cpu=None, full=None, cpu_a_token=None)
    show(Setting(SAID | {"clock": "wall"}), measured(wall_only), None)
    shown = capsys.readouterr().out
    assert shown.count("n/a") == 2 * 8
    assert "plain's wall seconds" in shown


def test_answers_that_differ_are_counted_with_the_largest_margin(capsys: pytest.CaptureFixture[str]) -> None:
    differing = (Difference(0, 3, 0.25), Difference(1, 4, 0.125))
    show(Setting(SAID), measured(replace(FIGURES, differing=differing)), None)
    assert "2/60 (0.2)" in capsys.readouterr().out


def test_the_first_token_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show(Setting(SAID), [], FIRST)
    assert capsys.readouterr().out.splitlines()[-1] == (
        "first token of 1000 + 32 tokens, CPU ms: cold 2100.0, warm 100.0 (992 tokens cached), ratio 21.0 (20.0..22.0)"
        "; the same token in 2 of 2"
    )


def test_json_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    different = (Difference(0, 3, 0.25),)
    print_json(Setting(SAID), measured(replace(FIGURES, differing=different, full_cpu=None)), FIRST)
    said = json.loads(capsys.readouterr().out)
    assert SAID.items() <= said.items()
    spread = {"median": 1.2, "min": 1.0, "max": 1.5, "rounds": [1.0, 1.5, 1.2]}
    assert len(said["measured"]) == 8
    assert said["measured"][0] == {
        "set": "plan", "batch": 1, "mode": "plain", "speed_up": spread, "speed_up_cpu": spread,
        "speed_up_wall": spread, "speed_up_full": None, "tokens_a_row_step": 1.5, "nodes_a_step": 4.0, "drafted": 0.5,
        "full_share": 0.75,
        "cpu_seconds_a_token": 0.02, "wall_seconds_a_token": 0.03, "rows": 60, "rows_differing": 1,
        "differing": [{"prompt": 0, "at": 3, "margin": 0.25}],
    }  # fmt: skip
    assert said["first_token"]["ratio"] == {"median": 21.0, "min": 20.0, "max": 22.0, "rounds": [20.0, 22.0]}
    assert (said["first_token"]["cached"], said["first_token"]["clock"]) == (992, "cpu")


def test_progress_and_every_figure_as_it_comes_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watch(2)
    with watch.shown():
        watch.tell("the first part")
        watch.note(measured()[1])
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == ["the first part", "plan, batch 1: hydra 1.20 (1.00..1.50), 0/60 differ"]
