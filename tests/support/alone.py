"""The simplest attention that the network can be given: whole rows, nothing kept between calls."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from backends.medusa.model import Shape


class Alone:
    """Keeps nothing: rows lie one after the other in the call, and each token sees its own row up to itself."""

    def __init__(self, shape: Shape, lengths: Sequence[int]) -> None:
        self._shape, self._lengths = shape, list(lengths)

    def attend(self, layer: int, queries: Tensor, fresh: Tensor) -> Tensor:
        pairs = zip(queries.split(self._lengths), fresh.split(self._lengths), strict=True)
        return torch.cat([self._row(*pair) for pair in pairs])

    def _row(self, queries: Tensor, fresh: Tensor) -> Tensor:
        width = self._shape.head_width
        heads = queries.unflatten(1, (-1, width)).transpose(0, 1)[None]
        keys, values = fresh.unflatten(1, (2, -1, width)).permute(1, 2, 0, 3).unsqueeze(1)
        seen = F.scaled_dot_product_attention(heads, keys, values, is_causal=True, enable_gqa=True)
        return seen[0].transpose(0, 1).flatten(1)
