"""Decoding heads on a frozen base model: what comes after the next token, guessed from the state that predicted it.

A head turns the base's hidden state into another state; the base's own output matrix, tied and cut to the most frequent
tokens, turns that into a guess. Head k (from 1) predicts the token k after the root, the root being the base's own next
token.

* Medusa (Cai et al. 2024, arXiv 2401.10774): every head for itself, one residual SiLU block on the hidden state.
* Hydra (Ankner et al. 2024, arXiv 2402.05109): head k also sees the tokens drafted before it, one after the other. The
  first also sees states from the middle of the base, an idea of EAGLE-3 (Li et al. 2025, arXiv 2503.01840).

What adds to the hidden state starts as zeros: an untrained head says what the base says.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

Weights = Mapping[str, Tensor]
MakeLinear = Callable[[Tensor], Callable[[Tensor], Tensor]]


def plain(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """A linear layer that gradients go through."""
    return lambda x: F.linear(x, weight)


class Heads(Protocol):
    """S is the number of states a base position offers: its hidden state, then its taps."""

    depth: int

    def first(self, states: Tensor, root: Tensor) -> Tensor:
        """states [N, S, D], root [N, D], the embedded root token. Returns head 1's state [N, D]."""

    def next(self, index: int, state: Tensor, states: Tensor, token: Tensor) -> Tensor:
        """Head index+1's state (index from 1), from the one before it [N, D], the base's states [N, S, D] and the
        embedded token drafted before it [N, D]. Returns [N, D]."""


class MedusaHeads:
    """s_k = h + SiLU(W_k h)."""

    kind: ClassVar[str] = "medusa"

    def __init__(self, weights: Weights, linear: MakeLinear = plain) -> None:
        self.depth = len(weights)
        self._blocks = [linear(weights[f"block.{index}"]) for index in range(self.depth)]

    @staticmethod
    def fresh(width: int, depth: int, taps: int, inner: int) -> dict[str, Tensor]:
        """Weights to train from; taps and inner are Hydra's."""
        return {f"block.{index}": torch.zeros(width, width) for index in range(depth)}

    def first(self, states: Tensor, root: Tensor) -> Tensor:
        return self._state(0, states)

    def next(self, index: int, state: Tensor, states: Tensor, token: Tensor) -> Tensor:
        return self._state(index, states)

    def _state(self, index: int, states: Tensor) -> Tensor:
        hidden = states[:, 0]
        return hidden + F.silu(self._blocks[index](hidden))


class HydraHeads:
    """s_k = s_{k-1} + down(SiLU(gate x) * up x), x = [s_{k-1}; the embedded token before; for head 1 the taps too],
    each part normed to one size, or the states would grow from head to head."""

    kind: ClassVar[str] = "hydra"

    def __init__(self, weights: Weights, linear: MakeLinear = plain) -> None:
        self.depth = sum(name.startswith("down.") for name in weights)
        self._gate_up = [linear(weights[f"gate_up.{index}"]) for index in range(self.depth)]
        self._down = [linear(weights[f"down.{index}"]) for index in range(self.depth)]

    @staticmethod
    def fresh(width: int, depth: int, taps: int, inner: int) -> dict[str, Tensor]:
        """Weights to train from. `inner`: the width inside a head."""
        weights = {}
        for index in range(depth):
            size = width * (2 + taps) if index == 0 else width * 2
            weights[f"gate_up.{index}"] = torch.randn(2 * inner, size) * size**-0.5
            weights[f"down.{index}"] = torch.zeros(width, inner)
        return weights

    def first(self, states: Tensor, root: Tensor) -> Tensor:
        hidden, taps = states[:, 0], states[:, 1:]
        return self._step(0, hidden, [hidden, root, *taps.unbind(1)])

    def next(self, index: int, state: Tensor, states: Tensor, token: Tensor) -> Tensor:
        return self._step(index, state, [state, token])

    def _step(self, index: int, state: Tensor, parts: Sequence[Tensor]) -> Tensor:
        x = torch.cat([F.rms_norm(part, part.shape[-1:]) for part in parts], -1)
        gate, up = self._gate_up[index](x).chunk(2, -1)
        return state + self._down[index](F.silu(gate) * up)


KINDS: dict[str, type[MedusaHeads] | type[HydraHeads]] = {heads.kind: heads for heads in (MedusaHeads, HydraHeads)}


def unrolled(heads: Heads, states: Tensor, tokens: Tensor) -> list[Tensor]:
    """All heads' states with the true tokens before them: states [N, S, D], tokens [N, K, D], the root's embedding
    first. Returns K times [N, D]."""
    found = [heads.first(states, tokens[:, 0])]
    for index in range(1, heads.depth):
        found.append(heads.next(index, found[-1], states, tokens[:, index]))
    return found
