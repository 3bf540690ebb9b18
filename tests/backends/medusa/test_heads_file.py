"""Heads on disk."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from backends.medusa.heads import KINDS
from backends.medusa.heads_file import ENTRY, FORMAT, HeadsFile, load, quantised, restored, save, shipped, sizes
from backends.medusa.weights import ModelFileError

BASE = sizes(layers=2, width=8, vocabulary=40)


def heads(kind: str = "hydra", **other: Any) -> HeadsFile:
    torch.manual_seed(3)
    weights = KINDS[kind].fresh(8, 3, 2, 12)
    weights = {name: weight + torch.randn_like(weight) for name, weight in weights.items()}
    fields: dict[str, Any] = {
        "kind": kind, "weights": weights, "ids": torch.tensor([1, 4, 39]), "taps": (0, 1), "base": BASE,
        "paths": [(0,), (1,), (0, 0), (0, 2)], "accuracy": {"chat": [[0.5, 0.6, 0.7]]}, "about": {"seed": 3},
    }  # fmt: skip
    return HeadsFile(**(fields | other))


@pytest.mark.parametrize("kind", list(KINDS))
def test_what_is_saved_is_loaded_within_the_int8_error(tmp_path: Path, kind: str) -> None:
    mine = heads(kind)
    save(tmp_path / "h.safetensors", mine)
    found = load(tmp_path / "h.safetensors", BASE)
    assert (found.kind, found.taps, found.paths, found.base) == (kind, mine.taps, mine.paths, BASE)
    assert (found.accuracy, found.about) == (mine.accuracy, mine.about)
    assert found.ids.tolist() == [1, 4, 39]
    assert found.weights.keys() == mine.weights.keys()
    for name, weight in mine.weights.items():
        assert found.weights[name].dtype == torch.float32
        steps = weight.abs().amax(-1, keepdim=True) / 127 if weight.ndim == 2 else torch.zeros(())
        assert ((found.weights[name] - weight).abs() <= steps * 0.501).all()
    KINDS[kind](found.weights)


@given(st.lists(st.lists(st.floats(-1e4, 1e4, width=32), min_size=3, max_size=3), min_size=1, max_size=4))
def test_each_row_is_within_half_a_step_of_its_own(rows: list[list[float]]) -> None:
    weight = torch.tensor(rows)
    found = restored(quantised({"w": weight}))["w"]
    assert ((found - weight).abs() <= weight.abs().amax(1, keepdim=True) / 127 * 0.501 + 1e-30).all()


def test_what_was_rounded_once_stays_as_it_is() -> None:
    once = restored(quantised(heads().weights))
    again = restored(quantised(once))
    for name, weight in once.items():
        torch.testing.assert_close(again[name], weight, rtol=1e-6, atol=0)


def test_the_same_heads_give_the_same_bytes(tmp_path: Path) -> None:
    for number in range(6):
        save(tmp_path / f"{number}.safetensors", heads())
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_a_file_is_complete_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(part: Path, content: bytes) -> None:
        part.write_text("half of it")
        raise KeyboardInterrupt

    save(tmp_path / "h.safetensors", heads())
    before = (tmp_path / "h.safetensors").read_bytes()
    monkeypatch.setattr(Path, "write_bytes", stopped)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "h.safetensors", heads(taps=(1,)))
    assert (tmp_path / "h.safetensors").read_bytes() == before


def test_a_file_has_the_permissions_that_any_other_has(tmp_path: Path) -> None:
    save(tmp_path / "h.safetensors", heads())
    (tmp_path / "other").write_bytes(b"")
    assert (tmp_path / "h.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_heads_for_another_base_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "h.safetensors", heads())
    with pytest.raises(ModelFileError, match="trained on a model of other sizes"):
        load(tmp_path / "h.safetensors", sizes(layers=3, width=8, vocabulary=40))
    assert load(tmp_path / "h.safetensors").base == BASE


def test_no_file_and_what_is_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="not a file of heads"):
        load(tmp_path / "missing.safetensors")
    save(tmp_path / "h.safetensors", heads())
    whole = (tmp_path / "h.safetensors").read_bytes()
    for content in (b"", b"something else", whole[:100], whole[:-50]):
        (tmp_path / "h.safetensors").write_bytes(content)
        with pytest.raises(ModelFileError, match="not a file of heads"):
            load(tmp_path / "h.safetensors")


def said(**changes: Any) -> dict[str, str]:
    whole = {"format": FORMAT, "kind": "hydra", "taps": [], "paths": [], "base": BASE, "accuracy": {}, "about": {}}
    return {ENTRY: json.dumps(whole | changes)}


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {},
        {ENTRY: "[]"},
        {ENTRY: "{"},
        said(format="another"),
        said(kind="another"),
        said(base=None),
        said(paths=3),
    ],
)
def test_other_safetensors_files_are_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    weights = {"ids": torch.tensor([1], dtype=torch.int32), **quantised(heads().weights)}
    save_file(weights, tmp_path / "h.safetensors", metadata)
    with pytest.raises(ModelFileError, match="not a file of heads"):
        load(tmp_path / "h.safetensors")


@pytest.mark.parametrize("missing", ["ids", "down.1", "down.1.scale", "gate_up.2"])
def test_a_file_that_lacks_a_tensor_is_refused(tmp_path: Path, missing: str) -> None:
    weights = {"ids": torch.tensor([1], dtype=torch.int32), **quantised(heads().weights)}
    del weights[missing]
    save_file(weights, tmp_path / "h.safetensors", said())
    with pytest.raises(ModelFileError, match="not a file of heads"):
        load(tmp_path / "h.safetensors")


@pytest.mark.parametrize("ids", [[], [4, 1], [1, 1], [-1, 3], [3, 40]])
def test_ids_that_the_base_does_not_have_are_refused(tmp_path: Path, ids: list[int]) -> None:
    weights = {"ids": torch.tensor(ids, dtype=torch.int32), **quantised(heads().weights)}
    save_file(weights, tmp_path / "h.safetensors", said())
    with pytest.raises(ModelFileError, match="not a file of heads"):
        load(tmp_path / "h.safetensors")


def test_a_tree_takes_the_most_valuable_paths() -> None:
    assert heads().tree(3).paths == [(), (0,), (1,)]
    assert len(heads().tree(1)) == 1
    assert len(heads().tree(99)) == 5


def test_the_heads_that_come_with_this_package_load() -> None:
    path = shipped()
    if path is not None:
        assert load(path, sizes(layers=30, width=576, vocabulary=49152)).kind == "hydra"
