"""What is shown."""

import io
import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from rich.console import Console

from backends.medusa.heads_file import HeadsFile
from backends.train_heads.evaluation import TREE_SIZES, Judged
from backends.train_heads.report import A_LINE_EVERY, Watch, as_json, print_json, show
from backends.train_heads.run import Made


class Clock:
    moment = 0.0

    def __call__(self) -> float:
        return self.moment


@pytest.fixture
def made(tmp_path: Path) -> Made:
    path = tmp_path / "heads.safetensors"
    path.write_bytes(b"x" * 2_500_000)
    expected = {size: 1 + size / 100 for size in TREE_SIZES}
    judged = Judged(1234, [[0.41, 0.6, 0.7], [0.3, 0.4, 0.5]], Counter(), expected)
    heads = HeadsFile(
        kind="hydra", weights={}, ids=torch.arange(5), taps=(9, 20), paths=[], base={}, about={"positions": 9000}
    )
    return Made(path, heads, {"chat": judged, "mt_bench": judged}, 9000, (3, 4))


def test_the_tables_have_every_set_head_and_tree(made: Made) -> None:
    shown = io.StringIO()
    show(made, Console(file=shown, width=100))
    text = shown.getvalue()
    rows = [line.split() for line in text.splitlines()]
    assert ["chat", "1,234", "0.41/0.60/0.70", "0.30/0.40/0.50"] in rows
    assert ["mt_bench", *(f"{1 + size / 100:.2f}" for size in TREE_SIZES)] in rows
    assert "head 2" in text
    assert "2.5 MB, trained on 9,000 positions" in " ".join(text.split())  # the path before it may fill the line


def test_json_has_the_same(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    print_json(made)
    found = json.loads(capsys.readouterr().out)
    assert found == as_json(made)
    assert (found["bytes"], found["kind"], found["vocabulary"]) == (2_500_000, "hydra", 5)
    assert found["shards"] == {"used": 3, "planned": 4}
    assert found["sets"]["chat"]["accuracy"] == [[0.41, 0.6, 0.7], [0.3, 0.4, 0.5]]
    assert found["sets"]["chat"]["expected_tokens"]["64"] == pytest.approx(1.64)


def test_without_a_terminal_a_line_comes_now_and_then_and_at_the_end() -> None:
    shown, clock = io.StringIO(), Clock()
    watch = Watch(Console(file=shown), clock)
    with watch.stage("steps", 10) as told:
        told(1, "quick")
        clock.moment += A_LINE_EVERY
        told(2, "later")
        told(3, "quick")
        told(10, "end")
    assert [line.split("train-heads: ")[1] for line in shown.getvalue().splitlines()] == [
        "steps 2 of 10, later", "steps 10 of 10, end",
    ]  # fmt: skip


def test_on_a_terminal_there_is_a_bar() -> None:
    shown = io.StringIO()
    watch = Watch(Console(file=shown, force_terminal=True, width=100))
    watch.say("a line [with brackets]")
    with watch.stage("answers", 10) as told:
        told(4, "77 new tokens")
    assert "a line [with brackets]" in shown.getvalue()
    assert "4/10" in shown.getvalue()
    assert "77 new tokens" in shown.getvalue()
