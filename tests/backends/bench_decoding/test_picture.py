"""The picture of a measurement."""

import sys
from pathlib import Path

import pytest

from backends.bench_decoding.figures import Figures, Spread
from backends.bench_decoding.measured import Measured, Setting
from backends.bench_decoding.picture import draw, faults
from tests.backends.bench_decoding.test_measured import SAID

SPREAD = Spread((1.0, 1.5, 1.2))
FIGURES = Figures(
    cpu=SPREAD, wall=SPREAD, full_cpu=SPREAD, full=SPREAD, tokens_a_row_step=1.5, nodes_a_step=4.0, drafted=0.5,
    full_share=0.75,    cpu_a_token=0.02, wall_a_token=0.03, rows=60, differing=(),
)  # fmt: skip


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_file_is_written(tmp_path: Path, suffix: str) -> None:
    measured = [
        Measured(of=of, batch=batch, mode=mode, figures=FIGURES)
        for of in ("plan", "chat")
        for batch in (1, 4)
        for mode in ("plain", "hydra")
    ]
    path = tmp_path / f"decoding{suffix}"
    assert faults(path) == []
    draw(path, Setting(SAID), measured)
    assert path.stat().st_size > 1000


def test_one_set_and_a_mode_that_is_not_everywhere_can_be_drawn(tmp_path: Path) -> None:
    measured = [Measured(of="plan", batch=1, mode="plain", figures=FIGURES)]
    measured += [Measured(of="plan", batch=2, mode="hydra", figures=FIGURES)]
    draw(tmp_path / "one.png", Setting(SAID | {"clock": "wall"}), measured)
    assert (tmp_path / "one.png").exists()


def test_what_would_go_wrong_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "expected a file name" in faults(tmp_path / "picture.txt")[0]
    assert "no folder" in faults(tmp_path / "nowhere" / "picture.png")[0]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert faults(tmp_path / "picture.png") == ["--plot needs matplotlib: pip install 'prefix-router[plot]'"]
