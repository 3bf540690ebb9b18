"""Prompts that are computed once and kept aside, so that what is timed is decoding alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from backends.medusa.batch import Batch
from backends.medusa.decoding import Decoding, Request


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A prompt whose keys and values [L, n, 2*K*E] lie here, with the token that follows it and the states [S, D] that
    predicted that: the hidden state, and one for each layer that the model tapped."""

    prompt: list[int]
    kept: Tensor
    first: int
    states: Tensor

    @classmethod
    def computed(cls, batch: Batch, prompt: Sequence[int]) -> Self:
        """By a batch without rows, which has none afterwards."""
        row = batch.join(Request(prompt=prompt, most_tokens=1))
        try:
            while row.states is None:
                batch.step()
            kept = batch.slab.slice(row.seat, 0, len(prompt)).clone()
            return cls(list(prompt), kept, row.root, row.states.clone())
        finally:
            batch.leave(row)

    def joined(self, batch: Batch, most_tokens: int, end: int, taps: Sequence[int]) -> Decoding:
        """A row of the batch that has said its first token. `taps`: which of the tapped states its heads want."""
        length = len(self.prompt)
        row = batch.join(Request(prompt=self.prompt, most_tokens=most_tokens, ends={end}), length - 1)
        batch.slab.slice(row.seat, 0, length).copy_(self.kept)
        row.prefilled(1)
        row.begin(self.first, self.states[[0, *(1 + tap for tap in taps)]])
        return row
