"""From files to a decoding core that is ready for its first request. It takes seconds, beside the event loop."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from backends.medusa import heads_file
from backends.medusa.batch import Batch, Settings
from backends.medusa.calibration import calibrate, clock_for
from backends.medusa.drafting import Drafter
from backends.medusa.heads_file import HeadsFile
from backends.medusa.jobs import Limits
from backends.medusa.kv import Slab
from backends.medusa.model import Llama
from backends.medusa.plan import NO_HEADS, Load
from backends.medusa.prefix import DEFAULT_BYTES, PrefixStore, blocks_in
from backends.medusa.running import Running
from backends.medusa.vocabulary import Vocabulary, vocabulary_of
from backends.medusa.weights import Checkpoint, ModelFileError, bundled, read

TREE_NODES = 16  # of the heads' tree; how many of them a step verifies is decided step by step


@dataclass(frozen=True, slots=True)
class Loaded:
    running: Running
    vocabulary: Vocabulary
    limits: Limits


def load(plan: Load, said: Callable[[str], None]) -> Loaded:
    """`said` hears one line a stage. Raises ModelFileError for files that do not fit, and for a device that is not
    there."""
    if plan.device == "cuda" and not torch.cuda.is_available():
        raise ModelFileError("--device cuda: no such device here, or this torch was built without CUDA")
    torch.set_num_threads(plan.threads)
    path = plan.model or bundled()
    said(f"reading {path.name}")
    checkpoint = read(path)
    if plan.max_model_len > checkpoint.shape.context:
        raise ModelFileError(f"--max-model-len: the model's context is {checkpoint.shape.context} tokens, give no more")
    vocabulary, heads = vocabulary_of(checkpoint), heads_of(plan, checkpoint)
    said(f"preparing {checkpoint.shape.layers} layers in {plan.dtype} for {plan.threads} thread(s) on {plan.device}")
    model = model_of(plan, checkpoint, heads)
    settings = Settings(prefill_tokens=plan.prefill_tokens, look=plan.look, always=plan.always_draft)
    length = plan.max_model_len + settings.most_nodes
    slab = Slab(model.shape, plan.max_running, length, model.dtype, model.device)
    clock = clock_for(plan.device, plan.threads)
    said("measuring what a step costs here")
    costs = calibrate(model, slab, clock)
    drafter = None if heads is None else drafter_of(heads, model)
    blocks = blocks_in(DEFAULT_BYTES, slab, plan.block_tokens) if plan.cache_blocks is None else plan.cache_blocks
    batch = Batch(model, slab, costs, clock, drafter, settings)
    limits = Limits(
        max_model_len=plan.max_model_len, vocabulary=model.shape.vocabulary, end=vocabulary.end, typical=plan.typical
    )
    said(f"ready: {'heads' if drafter else 'no heads'}, {1000 * costs.step(1, 1, 0):.0f} ms a plain step")
    return Loaded(Running(batch, PrefixStore(slab, blocks, plan.block_tokens)), vocabulary, limits)


def heads_of(plan: Load, checkpoint: Checkpoint) -> HeadsFile | None:
    """Named ones must fit; those of this package are for its own model only."""
    if plan.heads == NO_HEADS:
        return None
    path = Path(plan.heads) if plan.heads else heads_file.shipped() if plan.model is None else None
    s = checkpoint.shape
    return None if path is None else heads_file.load(path, heads_file.sizes(s.layers, s.width, s.vocabulary))


def model_of(plan: Load, checkpoint: Checkpoint, heads: HeadsFile | None) -> Llama:
    weights = {name: weight.to(plan.device, getattr(torch, plan.dtype)) for name, weight in checkpoint.weights.items()}
    return Llama(checkpoint.shape, weights, heads.taps if heads is not None else ())


def drafter_of(heads: HeadsFile, model: Llama) -> Drafter:
    return Drafter(heads.kind, heads.weights, model.embedding, heads.ids, heads.tree(TREE_NODES))
