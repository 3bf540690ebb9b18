"""Tools for the tests of the comparison: a tiny network of random numbers with random heads, in memory and on disk."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import llamas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from backends.bench_decoding.bench import Bench
    from backends.medusa.heads_file import HeadsFile
    from backends.medusa.model import Llama, Shape

PATHS = [(0,), (1,), (0, 0), (2,), (0, 1), (1, 0), (0, 0, 0), (3,)]
END = 96
BYTES = 258  # tokens of a vocabulary of single bytes, a turn's beginning and a turn's end


@pytest.fixture(autouse=True)
def _one_thread_and_no_gradients() -> Iterator[None]:
    import torch

    torch.set_num_threads(1)
    with torch.no_grad():
        yield


@pytest.fixture(scope="session")
def tiny() -> Llama:
    """2 layers, width 32, 97 tokens, a context of 512. Of this seed's, some answers repeat themselves."""
    return llamas.tiny_llama(context=512, seed=3)


def random_heads(kind: str, shape: Shape, taps: Sequence[int]) -> HeadsFile:
    import torch

    from backends.medusa.heads import KINDS
    from backends.medusa.heads_file import HeadsFile, sizes

    with torch.random.fork_rng():
        torch.manual_seed(1)
        fresh = KINDS[kind].fresh(shape.width, 3, len(taps), 16)
        weights = {name: 0.1 * torch.randn_like(weight) for name, weight in fresh.items()}
    return HeadsFile(
        kind=kind,
        weights=weights,
        ids=torch.arange(shape.vocabulary),
        taps=tuple(taps),
        paths=PATHS,
        base=sizes(shape.layers, shape.width, shape.vocabulary),
    )


@pytest.fixture
def ticking() -> Any:
    """Clocks that go on by one second, and by a quarter of one, each time they are read."""
    from backends.bench_decoding.meter import Clocks

    wall, cpu = count(), count()
    return Clocks(lambda: float(next(wall)), lambda: next(cpu) / 4)


@pytest.fixture
def bench(tiny: Llama, ticking: Any) -> Bench:
    """All heads there are; time passes by being looked at."""
    from backends.bench_decoding.bench import Bench
    from backends.medusa.costs import Costs, Curve

    heads = {
        "heads": random_heads("hydra", tiny.shape, (0,)),
        "heads_medusa": random_heads("medusa", tiny.shape, ()),
    }
    return Bench("tiny", tiny, END, heads, Costs(Curve((1, 64), (1.0, 1.1))), ticking)


@pytest.fixture
def prompts() -> list[list[int]]:
    """Five, of different lengths; they repeat themselves, so that there is something to look up."""
    return [[(3 * at + place % 7) % 90 for place in range(12 + at)] for at in range(5)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny model on disk whose tokens are bytes."""
    import tokenizers
    from tokenizers import AddedToken, decoders, models, pre_tokenizers

    from backends.medusa.vocabulary import END_OF_TURN
    from tests.support.reference import reference_llama

    shape = llamas.tiny_shape(vocabulary=BYTES, context=4096)
    reference_llama(shape, llamas.random_weights(shape)).save_pretrained(tmp_path / "tiny")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = tokenizers.Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(name, special=True) for name in ("<|im_start|>", END_OF_TURN)])
    core.save(str(tmp_path / "tiny" / "tokenizer.json"))
    return tmp_path / "tiny"


@pytest.fixture
def heads_on_disk(tmp_path: Path) -> Callable[[str], Path]:
    """A file of random heads of this kind, for the model in `folder`."""

    def write(kind: str) -> Path:
        from backends.medusa.heads_file import save

        path = tmp_path / f"{kind}.safetensors"
        shape = llamas.tiny_shape(vocabulary=BYTES)
        save(path, random_heads(kind, shape, (1,) if kind == "hydra" else ()))
        return path

    return write


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """A folder of traces with 30 questions and nothing else."""
    path = tmp_path / "traces"
    path.mkdir()
    rows = [json.dumps({"turns": [f"Question {at}?", "And then?"]}) for at in range(30)]
    (path / "mt_bench_question.jsonl").write_text("\n".join(rows), "utf-8")
    return path
