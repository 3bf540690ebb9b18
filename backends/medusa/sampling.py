"""Choosing the next token from the model's logits, with or without guesses at hand.

Greedy rows take the largest logit. A sampled row draws its token from the model's own distribution, and a guess that is
that token is accepted. This is rejection sampling (Leviathan et al. 2023) for guesses that are certain of themselves: a
guess is accepted with just its probability under the model, and what is drawn otherwise is the rest of the
distribution. So the text is distributed as if nothing had been guessed, and with the same seed it is the very same one.

Typical acceptance (Cai et al. 2024, section 3.3.1) is used only where it is asked for by name: it accepts more, and
changes the distribution.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

COLDEST = 1e-30  # divided by less, a logit is infinite in float32
LIKELY = (
    1024  # tokens among which the top_p likeliest nearly always are: found in a fraction of the time of a whole sort
)


class Sampler(Protocol):
    def choose(self, logits: Tensor, guesses: Collection[int]) -> int:
        """The next token, from logits [V]; `guesses`: tokens after which the pass has computed the next choice too."""


def distribution(logits: Tensor, temperature: float, top_p: float = 1.0) -> Tensor:
    """Probabilities [V] at this temperature, cut to the smallest set of likeliest tokens whose sum reaches `top_p`.

    Holtzman et al. 2020. At least one token is left. Raises ValueError for temperature <= 0 or top_p outside (0, 1].
    """
    if not temperature > 0 or not 0 < top_p <= 1:
        raise ValueError("the temperature must be above 0, and top_p above 0 and at most 1")
    chance = (logits.float() / max(temperature, COLDEST)).softmax(-1)
    if top_p < 1:
        values, places = chance.topk(min(LIKELY, len(chance)))
        if values.sum() < top_p:
            values, places = chance.sort(descending=True)
        values[values.cumsum(0) - values >= top_p] = 0.0  # what reached it without them
        chance = torch.zeros_like(chance).scatter_(0, places, values)
        chance /= chance.sum()
    return chance


@dataclass(slots=True)
class Nucleus:
    """Lossless sampling. One row's own source of chance: nothing that other rows do changes its text."""

    temperature: float
    top_p: float = 1.0
    seed: int = 0
    _dice: torch.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._dice = torch.Generator().manual_seed(self.seed)

    def choose(self, logits: Tensor, guesses: Collection[int]) -> int:
        return self._draw(distribution(logits, self.temperature, self.top_p))

    def _draw(self, chance: Tensor) -> int:
        """A race of exponentials over all tokens (`multinomial` runs one): a last bit in the probabilities, which a
        tree may change, hardly ever changes the winner."""
        return int(torch.multinomial(chance.cpu(), 1, generator=self._dice))


@dataclass(slots=True)
class Typical(Nucleus):
    """NOT lossless: a guess counts as right when its probability is above min(epsilon, delta * exp(-entropy))."""

    epsilon: float = 0.09
    delta: float = 0.3

    def choose(self, logits: Tensor, guesses: Collection[int]) -> int:
        chance = distribution(logits, self.temperature, self.top_p)
        entropy = float(torch.special.entr(chance).sum())
        bound = min(self.epsilon, self.delta * math.exp(-entropy))
        fair = [(float(chance[guess]), guess) for guess in guesses]
        best = max(fair, default=(0.0, -1))
        return best[1] if best[0] > bound else self._draw(chance)


@dataclass(frozen=True, slots=True)
class Logprobs:
    """The chosen token's log probability under the model, temperature aside, and the likeliest tokens'."""

    token: int
    logprob: float
    top: Sequence[tuple[int, float]]


def logprobs_of(logits: Tensor, token: int, count: int) -> Logprobs:
    """`count` likeliest tokens of logits [V], descending."""
    certain = logits.float().log_softmax(-1)
    values, places = certain.topk(count)
    top = list(zip(places.tolist(), values.tolist(), strict=True))
    return Logprobs(token, float(certain[token]), top)
