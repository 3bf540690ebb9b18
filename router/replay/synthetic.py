"""A made trace in the manner of the public shared-prefix benchmarks: groups of prompts with one beginning each, some
far more wanted than others (Zipf), questions and answers of exponential length, Poisson arrivals."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from router.replay.blocks import BlockLine
from router.replay.item import BLOCK

GROUPS, PREFIX, QUESTION, OUTPUT, RATE = 64, 4096, 600, 150, 10.0
COUNT = 8000


def shared_prefixes(dice: Random, count: int = COUNT) -> Iterator[BlockLine]:
    """The hottest group has a fifth of the requests."""
    weights = [1.0 / (rank + 1) for rank in range(GROUPS)]
    clock = 0.0
    for at, group in enumerate(dice.choices(range(GROUPS), weights, k=count)):
        clock += dice.expovariate(RATE)
        question = max(16, int(dice.expovariate(1.0 / QUESTION)))
        tail: list[int | str] = [f"q{at}-{block}" for block in range((question + BLOCK - 1) // BLOCK)]
        names: list[int | str] = [f"g{group}-{block}" for block in range(PREFIX // BLOCK)]
        output = max(1, int(dice.expovariate(1.0 / OUTPUT)))
        yield BlockLine(clock * 1000.0, PREFIX + question, output, names + tail)
