"""Decoding one token after the other, each from the whole text anew: what every quicker way has to agree with."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from backends.medusa.model import Llama, Shape


class Whole:
    """A keeper for one text that is fed whole: attention as it is written in the paper."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.kept: list[Tensor] = []

    def attend(self, layer: int, queries: Tensor, fresh: Tensor) -> Tensor:
        s = self._shape
        self.kept.append(fresh.clone())
        keys, values = fresh.unflatten(1, (2, s.kv_heads, s.head_width)).unbind(1)  # [n, K, E]
        keys, values = (part.repeat_interleave(s.heads // s.kv_heads, 1) for part in (keys, values))
        asked = queries.unflatten(1, (s.heads, s.head_width))
        scores = torch.einsum("qhe,khe->hqk", asked, keys) / s.head_width**0.5
        unseen = torch.ones(len(fresh), len(fresh), dtype=torch.bool).triu(1)
        chance = scores.masked_fill(unseen, -inf).softmax(-1)
        return torch.einsum("hqk,khe->qhe", chance, values).flatten(1)


@dataclass(frozen=True)
class Computed:
    """A text of n tokens: `logits` [n, V], `states` [n, S, D], and the keys and values `kept` [L, n, 2*K*E]."""

    logits: Tensor
    states: Tensor
    kept: Tensor


def computed(model: Llama, ids: Sequence[int]) -> Computed:
    keeper = Whole(model.shape)
    hidden, taps = model.forward(torch.tensor(ids), torch.arange(len(ids)), keeper)
    return Computed(model.logits(hidden), torch.stack([hidden, *taps], 1), torch.stack(keeper.kept))


def greedy(model: Llama, prompt: Sequence[int], most: int, ends: Collection[int] = ()) -> list[int]:
    text: list[int] = []
    while len(text) < most and not (text and text[-1] in ends):
        text.append(int(computed(model, [*prompt, *text]).logits[-1].argmax()))
    return text


def shortfall(model: Llama, prompt: Sequence[int], text: Sequence[int]) -> float:
    """By how much the logit of a token of the text is below the likeliest one's, at most: 0 for a greedy text."""
    logits = computed(model, [*prompt, *text]).logits[len(prompt) - 1 : -1]
    return float((logits.amax(-1) - logits[range(len(text)), list(text)]).max())


def margin(model: Llama, prompt: Sequence[int], one: Sequence[int], other: Sequence[int]) -> float:
    """How far apart the logits are where two texts part: 0 for equal ones, infinite if one goes on after the other."""
    if list(one) == list(other):
        return 0.0
    parting = next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    if parting is None:
        return inf
    logits = computed(model, [*prompt, *one[:parting]]).logits[-1]
    return abs(float(logits[one[parting]] - logits[other[parting]]))
