"""The picture."""

from pathlib import Path

import pytest

from bench.path.figures import gather
from bench.path.picture import draw, faults
from tests.bench.path.conftest import Made


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_file_is_written(tmp_path: Path, suffix: str, run: Made) -> None:
    runs = [run(peer, case) for peer in ("direct", "ours", "nginx") for case in ("json-2k", "sse", "one")]
    path = tmp_path / f"cost{suffix}"
    assert faults(path) == []
    draw(path, "a machine", gather(runs, "ours"), "ours")
    assert path.stat().st_size > 1000


def test_one_figure_is_drawn_too(tmp_path: Path, run: Made) -> None:
    draw(tmp_path / "one.png", "a machine", gather([run()], "ours"), "ours")
    assert (tmp_path / "one.png").stat().st_size > 1000


def test_nothing_to_show_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no figure"):
        draw(tmp_path / "none.png", "a machine", gather([], "ours"), "ours")


def test_a_kind_that_cannot_be_drawn_is_told_before(tmp_path: Path) -> None:
    assert faults(tmp_path / "cost.txt") == [
        f"--plot {tmp_path / 'cost.txt'}: expected a file name that ends in .png, .svg, .pdf"
    ]


def test_a_folder_that_is_not_there_is_told_before(tmp_path: Path) -> None:
    path = tmp_path / "none" / "cost.png"
    assert faults(path) == [f"--plot {path}: there is no folder {path.parent}"]
