"""Networks for the tests of the worker with a real model: SmolLM2 as it is installed, and tiny ones of random numbers.

Each is read once a process. The modules that need torch are imported when called, so that a test run without torch can
still collect and say what it leaves out.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from backends.medusa.model import Llama, Shape
    from backends.medusa.vocabulary import Vocabulary
    from backends.medusa.weights import Checkpoint


@cache
def smollm2() -> Checkpoint:
    from backends.medusa.weights import bundled, read

    return read(bundled())


@cache
def smollm2_llama() -> Llama:
    """In float32; 3 seconds to pack."""
    from backends.medusa.model import Llama

    return Llama(smollm2().shape, smollm2().weights)


@cache
def smollm2_vocabulary() -> Vocabulary:
    from backends.medusa.vocabulary import vocabulary_of

    return vocabulary_of(smollm2())


def tiny_shape(**other: Any) -> Shape:
    from backends.medusa.model import Shape

    sizes = {
        "layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "head_width": 8, "inner": 48, "vocabulary": 97,
        "epsilon": 1e-5, "rope_base": 10000.0, "context": 256,
    }  # fmt: skip
    return Shape(**(sizes | other))


def random_weights(shape: Shape, *, tied: bool = True, seed: int = 0) -> dict[str, Tensor]:
    """Every tensor of the family under GGUF's names, large enough that each one moves the logits."""
    import torch

    from backends.medusa.weights import sizes_of

    chance = torch.Generator().manual_seed(seed)
    sizes = dict(sizes_of(shape))
    if not tied:
        sizes["output.weight"] = (shape.vocabulary, shape.width)
    return {
        name: torch.randn(size, generator=chance) * (0.3 if len(size) == 2 else 0.2) + (len(size) == 1)
        for name, size in sizes.items()
    }


def tiny_llama(taps: Sequence[int] = (), seed: int = 0, **shape: Any) -> Llama:
    from backends.medusa.model import Llama

    sizes = tiny_shape(**shape)
    return Llama(sizes, random_weights(sizes, seed=seed), taps)
