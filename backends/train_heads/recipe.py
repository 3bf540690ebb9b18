"""All that decides what heads come out of a training run, but for the answers and the weights it starts from."""

import math
from dataclasses import dataclass

LEAST_RATE = 0.03  # of the peak


@dataclass(frozen=True, slots=True)
class Recipe:
    """`inner`: the width inside a Hydra head; `vocabulary`: tokens that the heads can say; `windows`: a step has
    windows * 32 positions; `rate`: AdamW's peak; `warm_up`: steps until it is reached; `decay`: a head's weight in the
    loss, to that of the head before; `soft`: the share of the base's own distribution in what a head is to learn."""

    kind: str = "hydra"
    depth: int = 5
    inner: int = 1024
    vocabulary: int = 16384
    steps: int = 12000
    windows: int = 8
    rate: float = 4e-4
    warm_up: int = 100
    weight_decay: float = 0.01
    decay: float = 0.8
    soft: float = 0.5
    seed: int = 0


def rate_at(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then a cosine down to a thirtieth."""
    if step < recipe.warm_up:
        return recipe.rate * (step + 1) / recipe.warm_up
    share = (step - recipe.warm_up) / max(1, recipe.steps - recipe.warm_up)
    return recipe.rate * ((1 - LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * share)) + LEAST_RATE)
