"""The picture of a replay."""

from pathlib import Path

import pytest

from router import replay_plot
from router.layers import SettingsError
from router.replay.figures import NUMBERS, Figures
from router.replay.simulate import Setup
from router.replay_plot import check, draw
from router.replay_run import Load, Outcome, Plan

FIGURES = Figures(900, 0.5, 0.2, 1.0, 2.0, 0.75, 0.98, 1.08, 0.71)
OUTCOME = Outcome(FIGURES, dict.fromkeys(NUMBERS, (0.0, 1.0)), times=[0.0, 0.1, 0.5, 2.0])


def faults(path: Path) -> list[str]:
    with pytest.raises(SettingsError) as wrong:
        check(path)
    return wrong.value.faults


def test_a_missing_library_is_said_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(replay_plot, "import_module", missing)
    assert faults(tmp_path / "a.png") == ["--plot needs matplotlib: pip install 'prefix-router[plot]'"]


def test_a_place_that_cannot_be_written_is_said_before_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(replay_plot, "import_module", lambda name: None)
    check(tmp_path / "a.png")
    found = faults(tmp_path / "nowhere" / "a.gif")
    assert "ends in .png, .svg or .pdf" in found[0]
    assert "there is no folder" in found[1]


@pytest.mark.parametrize("reached", [0.7, None])
def test_a_picture_is_drawn(tmp_path: Path, reached: float | None) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "replay.png"
    load = Load(reached, 3.0, reached, {"prefix_cost": OUTCOME, "random": OUTCOME})
    draw(path, Plan("talk.jsonl", Setup(replicas=2)), load)
    assert path.read_bytes().startswith(b"\x89PNG")
