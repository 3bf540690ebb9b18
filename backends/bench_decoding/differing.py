"""Whether a mode said what plain decoding said, and if not, how near the model was to saying so itself."""

from collections.abc import Callable, Iterator, Sequence

import torch

from backends.bench_decoding.figures import Difference, Trial
from backends.bench_decoding.prefilled import Prefilled
from backends.medusa.kv import Pass, Slab, Span
from backends.medusa.model import Llama

Margin = Callable[[int, Sequence[int]], float]  # of a prompt, by its place, after so much of plain's answer


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first place at which they differ, or one of them has ended. None: they are equal."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return None if len(one) == len(other) else min(len(one), len(other))


def differences(trials: Sequence[Trial], margin: Margin) -> Iterator[Difference]:
    """Every answer of every round, against the plain run just before."""
    for trial in trials:
        for prompt, (said, plain) in enumerate(zip(trial.run.outputs, trial.before.outputs, strict=True)):
            at = first_difference(said, plain)
            if at is not None:
                yield Difference(prompt, at, margin(prompt, plain[:at]))


@torch.no_grad()
def margin_after(model: Llama, slab: Slab, prompt: Prefilled, answer: Sequence[int]) -> float:
    """The best logit less the second best, after the prompt and so much of its answer, in one pass."""
    length, count = len(prompt.prompt), len(answer)
    seat = slab.take()
    try:
        slab.slice(seat, 0, length).copy_(prompt.kept)
        tokens = torch.tensor(answer, device=model.device)
        positions = torch.arange(length, length + count, device=model.device)
        hidden, _ = model.forward(tokens, positions, Pass(slab, [Span(seat, length, count)]))
        first, second = model.logits(hidden[-1:]).topk(2, -1).values[0].tolist()
    finally:
        slab.give(seat)
    return float(first - second)
