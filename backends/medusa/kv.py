"""Where keys and values lie, and attention over them.

One slab has a seat of equal size for every row. Within its seat a row's token lies at its own position, so a committed
beginning is one slice: nothing is gathered and nothing is padded, and a row's result does not depend on who else is in
the pass. A tree's nodes lie behind the committed tokens in the order they are given; what was accepted is moved to the
front of them, once a step, after verification.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from backends.medusa.model import Shape


@dataclass(frozen=True, slots=True)
class Span:
    """One row's part of a pass: `count` tokens behind the `length` that are committed at `seat`.

    `sees` [count, count]: token i may see token j of this span; None: all before it and itself, as text does. All
    committed tokens are seen by all.
    """

    seat: int
    length: int
    count: int
    sees: Tensor | None = None


class Slab:
    """Keys and values of up to `rows` sequences of up to `length` tokens: [L, rows*length, 2*K*E]."""

    def __init__(self, shape: Shape, rows: int, length: int, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.rows, self.length = shape, rows, length
        self.kept = torch.empty(  # memory is taken as it is written
            shape.layers, rows * length, 2 * shape.kv_heads * shape.head_width, dtype=dtype, device=device
        )
        pairs = self.kept.view(shape.layers, 1, rows * length, 2, shape.kv_heads, shape.head_width)
        self.keys, self.values = pairs.transpose(2, 4).unbind(3)  # [L, 1, K, rows*length, E] each, views
        self._free = list(range(rows))[::-1]

    @property
    def seats(self) -> int:
        """Seats that are free."""
        return len(self._free)

    def take(self) -> int:
        """A free seat, to be given back once. Raises IndexError when there is none."""
        return self._free.pop()

    def give(self, seat: int) -> None:
        """Back again. Raises ValueError for a seat that is free."""
        if seat in self._free:
            raise ValueError(f"seat {seat} is given back a second time")
        self._free.append(seat)

    def slice(self, seat: int, start: int, end: int) -> Tensor:
        """Positions start..end of a seat, all layers: [L, end-start, 2*K*E], a view."""
        base = seat * self.length
        return self.kept[:, base + start : base + end]

    def gather(self, moves: Sequence[tuple[int, int, int]]) -> None:
        """Copies (seat, from, to) positions, all at once; a target may be another's source."""
        if moves:
            source = torch.tensor([seat * self.length + old for seat, old, _ in moves], device=self.kept.device)
            target = torch.tensor([seat * self.length + new for seat, _, new in moves], device=self.kept.device)
            self.kept[:, target] = self.kept[:, source]


class Pass:
    """The keeper of one forward pass over several rows, whose tokens come in the order of `spans`."""

    def __init__(self, slab: Slab, spans: Sequence[Span]) -> None:
        self._slab, self._shape = slab, slab.shape
        device = slab.kept.device
        starts = [span.seat * slab.length + span.length for span in spans]
        self._slots = torch.cat(
            [torch.arange(start, start + span.count) for start, span in zip(starts, spans, strict=True)]
        ).to(device)
        self._parts: list[tuple[int, int, int, int, Tensor | None]] = []  # first and end query, first and end slot
        groups, first = slab.shape.heads // slab.shape.kv_heads, 0
        for span in spans:
            base, end = span.seat * slab.length, first + span.count * groups
            self._parts.append((first, end, base, base + span.length + span.count, self._mask(span)))
            first = end

    def attend(self, layer: int, queries: Tensor, fresh: Tensor) -> Tensor:
        """See `model.Keeper`. A group's queries share its keys: they are folded into one longer sequence."""
        s, slab = self._shape, self._slab
        slab.kept[layer].index_copy_(0, self._slots, fresh)
        keys, values = slab.keys[layer], slab.values[layer]  # [1, K, slots, E]
        asked = queries.view(-1, s.kv_heads, s.heads // s.kv_heads, s.head_width).transpose(0, 1)
        asked = asked.reshape(1, s.kv_heads, -1, s.head_width)  # [1, K, N*H/K, E]
        found = torch.empty_like(asked)
        for first, end, base, until, mask in self._parts:
            found[:, :, first:end] = F.scaled_dot_product_attention(
                asked[:, :, first:end], keys[:, :, base:until], values[:, :, base:until], attn_mask=mask
            )
        return found.view(s.kv_heads, -1, s.heads // s.kv_heads, s.head_width).transpose(0, 1).reshape(queries.shape)

    def _mask(self, span: Span) -> Tensor | None:
        """[count*H/K, length+count], to be added; None where all is seen."""
        if span.count == 1:
            return None
        sees = torch.ones(span.count, span.count, dtype=torch.bool).tril() if span.sees is None else span.sees
        mask = torch.zeros(span.count, span.length + span.count, dtype=self._slab.kept.dtype)
        mask[:, span.length :].masked_fill_(~sees, float("-inf"))
        return mask.repeat_interleave(self._shape.heads // self._shape.kv_heads, 0).to(self._slab.kept.device)
