"""A model and heads from disk, ready to be measured."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from backends.bench_decoding.opening import clocks_of, opened
from backends.medusa.weights import ModelFileError

HOW = {"dtype": "float32", "device": "cpu", "threads": 1, "told": lambda line: None}


def test_what_a_pass_costs_is_measured_and_the_heads_fit(folder: Path, heads_on_disk: Callable[[str], Path]) -> None:
    heads = {"heads": heads_on_disk("hydra"), "heads_medusa": heads_on_disk("medusa")}
    bench, vocabulary = opened(folder, heads, **HOW)
    assert bench.name == "tiny"
    assert bench.end == vocabulary.end
    assert {name: file.kind for name, file in bench.heads.items()} == {"heads": "hydra", "heads_medusa": "medusa"}
    assert all(seconds > 0 for seconds in bench.costs.curve.seconds)


def test_bfloat16_is_what_it_computes_in_when_told_to(folder: Path) -> None:
    bench, _ = opened(folder, {}, **(HOW | {"dtype": "bfloat16"}))
    assert bench.model.dtype == torch.bfloat16


def test_heads_of_the_wrong_kind_are_refused(folder: Path, heads_on_disk: Callable[[str], Path]) -> None:
    with pytest.raises(ModelFileError, match="heads of the kind hydra; --heads-medusa takes medusa"):
        opened(folder, {"heads_medusa": heads_on_disk("hydra")}, **HOW)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_a_device_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(ModelFileError, match="--device cuda: no such device"):
        opened(folder, {}, **(HOW | {"device": "cuda"}))


def test_cpu_seconds_are_taken_with_one_thread_on_a_cpu_only() -> None:
    assert clocks_of("cpu", 1).cpu is not None
    assert clocks_of("cpu", 2).cpu is None
    assert clocks_of("cuda", 1).cpu is None
