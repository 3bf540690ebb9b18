"""Reading the model and the heads from disk, and the clocks that fit the device."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from backends.bench_decoding.bench import Bench
from backends.bench_decoding.meter import Clocks
from backends.medusa.calibration import CONTEXT, ROWS, WIDTH, calibrate
from backends.medusa.heads_file import HeadsFile, load, sizes
from backends.medusa.kv import Slab
from backends.medusa.loading import model_of
from backends.medusa.model import Shape
from backends.medusa.plan import Load
from backends.medusa.vocabulary import Vocabulary, vocabulary_of
from backends.medusa.weights import ModelFileError, bundled, read

KINDS = {"heads": "hydra", "heads_medusa": "medusa"}  # by flag


def opened(
    model_path: Path | None,
    heads: Mapping[str, Path],
    *,
    dtype: str,
    device: str,
    threads: int,
    told: Callable[[str], None],
) -> tuple[Bench, Vocabulary]:
    """Raises ModelFileError for what cannot be read, and for a device that is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelFileError("--device cuda: no such device here, or this torch was built without CUDA")
    torch.set_num_threads(threads)
    told("reading the model")
    checkpoint = read(model_path or bundled())
    known = {name: loaded(name, path, checkpoint.shape) for name, path in heads.items()}
    vocabulary = vocabulary_of(checkpoint)
    model = model_of(Load(dtype=dtype, device=device), checkpoint, None)
    clocks = clocks_of(device, threads)
    told("measuring what a pass costs")
    slab = Slab(model.shape, ROWS, min(model.shape.context, CONTEXT + WIDTH), model.dtype, model.device)
    return Bench(
        checkpoint.source.name, model, vocabulary.end, known, calibrate(model, slab, clocks.best), clocks, told
    ), vocabulary


def loaded(flag: str, path: Path, shape: Shape) -> HeadsFile:
    """Raises ModelFileError."""
    found = load(path, sizes(shape.layers, shape.width, shape.vocabulary))
    if found.kind != KINDS[flag]:
        raise ModelFileError(f"{path}: heads of the kind {found.kind}; --{flag.replace('_', '-')} takes {KINDS[flag]}")
    return found


def clocks_of(device: str, threads: int) -> Clocks:
    """CPU seconds on the CPU with one thread; elsewhere wall time alone."""
    if device == "cuda":
        return Clocks(time.perf_counter, None, torch.cuda.synchronize)
    return Clocks(time.perf_counter, time.process_time if threads == 1 else None)
