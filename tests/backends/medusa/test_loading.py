"""From files to a core that is ready."""

from pathlib import Path
from typing import Any

import pytest
import torch

from backends.medusa import heads_file
from backends.medusa.drafting import Drafter
from backends.medusa.heads import HydraHeads
from backends.medusa.heads_file import HeadsFile
from backends.medusa.loading import load
from backends.medusa.plan import Load
from backends.medusa.weights import ModelFileError
from tests.support.llamas import tiny_shape
from tests.support.tiny_worker import TOKENS, run_of, running_of, saved, told

PATHS = [(0,), (1,), (0, 0), (0, 1), (0, 0, 0)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untrained ones for the tiny network."""
    shape, path = tiny_shape(vocabulary=TOKENS), tmp_path_factory.mktemp("heads") / "tiny.safetensors"
    file = HeadsFile(
        kind="hydra",
        weights=HydraHeads.fresh(shape.width, 3, 1, 16),
        ids=torch.arange(TOKENS),
        taps=(0,),
        paths=PATHS,
        base=heads_file.sizes(shape.layers, shape.width, shape.vocabulary),
    )
    heads_file.save(path, file)
    return path


def small(path: Path, **more: Any) -> Load:
    return Load(model=path, **({"max_model_len": 160, "max_running": 2, "block_tokens": 4} | more))


def test_a_saved_model_says_what_the_same_one_in_memory_says(folder: Path) -> None:
    said: list[str] = []
    loaded = load(small(folder), said.append)
    told(loaded.running, one := run_of(range(30), 12))
    told(running_of(), other := run_of(range(30), 12))
    assert one.row is not None
    assert other.row is not None
    assert one.row.output == other.row.output
    assert said[0] == "reading tiny"
    assert said[-1].startswith("ready: no heads")


def test_heads_that_are_named_are_used_and_change_nothing_that_is_said(folder: Path, heads: Path) -> None:
    with_heads = load(small(folder, heads=str(heads), always_draft=True), lambda _: None).running
    assert isinstance(with_heads.batch.drafter, Drafter)
    told(with_heads, one := run_of(range(30), 40))
    told(running_of(), other := run_of(range(30), 40))
    assert one.row is not None
    assert other.row is not None
    assert one.row.output == other.row.output
    assert with_heads.batch.tally.drafts


def test_without_heads_there_is_no_drafter(folder: Path) -> None:
    """The packaged model's own are not for another."""
    for named in (None, "none"):
        assert load(small(folder, heads=named), lambda _: None).running.batch.drafter is None


def test_the_settings_arrive(folder: Path) -> None:
    plan = small(folder, look=False, prefill_tokens=7, cache_blocks=9, typical=True, dtype="bfloat16")
    loaded = load(plan, lambda _: None)
    batch = loaded.running.batch
    assert (batch.settings.look, batch.settings.prefill_tokens) == (False, 7)
    assert (batch.slab.rows, batch.slab.kept.dtype) == (2, torch.bfloat16)
    assert (loaded.running.stats().blocks, loaded.running.stats().block_tokens) == (9, 4)
    assert (loaded.limits.typical, loaded.limits.max_model_len, loaded.limits.vocabulary) == (True, 160, TOKENS)
    assert loaded.limits.end == loaded.vocabulary.end


def test_the_longest_prompt_and_answer_fit(folder: Path) -> None:
    loaded = load(small(folder), lambda _: None)
    told(loaded.running, run := run_of(range(100), 60))
    assert run.made == 60


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"max_model_len": 300}, "the model's context is 256 tokens"),
        ({"path": Path("/nowhere")}, "/nowhere"),
        ({"heads": "/nowhere/heads"}, "/nowhere/heads"),
    ],
)
def test_what_does_not_fit_is_named(folder: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelFileError, match=said):
        load(small(**({"path": folder} | more)), lambda _: None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one here")
def test_a_device_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(ModelFileError, match="--device cuda"):
        load(small(folder, device="cuda"), lambda _: None)
