"""The Llama family's forward pass, one page.

N is the number of tokens in the call, of whichever rows and positions: the linear layers see them flat. Only attention
knows rows, and it belongs to who keeps the keys and values (`kv.py`), so prefill, decode and tree verification are the
same pass here. RMSNorm: Zhang and Sennrich 2019; rotary positions: Su et al. 2021; grouped-query attention: Ainslie et
al. 2023; SwiGLU: Shazeer 2020.

On a CPU the weights are packed once for oneDNN. Its kernels give each row bitwise the same result whatever stands in
the other rows, except below `LEAST_ROWS`, where another kernel is chosen: such calls are padded. That is what makes a
token's logits independent of who shares the batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

LEAST_ROWS = 4  # oneDNN is as quick with four rows as with one, and equal from there on
PACKED_FOR = 16  # rows that the packed layout is made for


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama-family network's sizes. Widths in numbers, `context` in tokens."""

    layers: int
    width: int  # D
    heads: int  # H
    kv_heads: int  # K
    head_width: int  # E
    inner: int  # the feed-forward's width
    vocabulary: int  # V
    epsilon: float
    rope_base: float
    context: int


class Keeper(Protocol):
    """Keeps keys and values, and answers queries with them."""

    def attend(self, layer: int, queries: Tensor, fresh: Tensor) -> Tensor:
        """queries [N, H*E]; fresh [N, 2*K*E], keys then values, to be kept first. Returns [N, H*E]."""


class Linear:
    """x [N, in] -> [N, out], without bias. Packed where that is quicker."""

    def __init__(self, weight: Tensor) -> None:
        self._packed = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
        self._weight = weight.contiguous()
        if self._packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(self._weight, PACKED_FOR)  # noqa: SLF001

    def __call__(self, x: Tensor) -> Tensor:
        if not self._packed:
            return F.linear(x, self._weight)
        rows = x.shape[0]
        if rows < LEAST_ROWS:
            x = F.pad(x, (0, 0, 0, LEAST_ROWS - rows))
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")  # noqa: SLF001
        return y[:rows]


class Layer:
    """One block's matrices. The gains of its two norms are folded into what they feed."""

    def __init__(self, weights: Mapping[str, Tensor], index: int) -> None:
        def of(name: str) -> Tensor:
            return weights[f"blk.{index}.{name}.weight"]

        self.qkv = Linear(torch.cat([of("attn_q"), of("attn_k"), of("attn_v")]) * of("attn_norm"))
        self.out = Linear(of("attn_output"))
        self.gate_up = Linear(torch.cat([of("ffn_gate"), of("ffn_up")]) * of("ffn_norm"))
        self.down = Linear(of("ffn_down"))


class Llama:
    """The network. Weights come under GGUF's names, queries and keys in its order, where a rotated pair lies side by
    side (`weights.py`). It computes in the weights' type: float32 is exact but for rounding, bfloat16 only approximate,
    so that close tokens may change places.

    `taps`: layers after which the residual stream is handed out too, for heads that want to see it.
    """

    def __init__(self, shape: Shape, weights: Mapping[str, Tensor], taps: Sequence[int] = ()) -> None:
        self.shape = shape
        self.embedding = weights["token_embd.weight"]  # [V, D]
        self.dtype, self.device = self.embedding.dtype, self.embedding.device
        self._layers = [Layer(weights, index) for index in range(shape.layers)]
        self._norm = weights["output_norm.weight"]  # [D]
        self._head = Linear(weights.get("output.weight", self.embedding))
        self._turns = turns(shape).to(self.device)  # [context, E/2], complex
        self.taps = tuple(taps)

    def forward(self, tokens: Tensor, positions: Tensor, keeper: Keeper) -> tuple[Tensor, list[Tensor]]:
        """tokens and positions [N], int64. Returns the normed hidden states [N, D], and one [N, D] a tap."""
        s = self.shape
        rotated, kept = (s.heads + s.kv_heads) * s.head_width, s.heads * s.head_width
        turn = self._turns[positions].unsqueeze(1)  # [N, 1, E/2]
        x = F.embedding(tokens, self.embedding)  # [N, D]
        tapped = []
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(F.rms_norm(x, (s.width,), None, s.epsilon))  # [N, (H+2K)*E]
            pairs = qkv[:, :rotated].unflatten(1, (-1, s.head_width // 2, 2))  # [N, H+K, E/2, 2]
            pairs.copy_(torch.view_as_real(torch.view_as_complex(pairs.float()) * turn))
            x = x + layer.out(keeper.attend(index, qkv[:, :kept], qkv[:, kept:]))
            gate, up = layer.gate_up(F.rms_norm(x, (s.width,), None, s.epsilon)).chunk(2, -1)  # [N, inner] each
            x = x + layer.down(F.silu(gate) * up)
            if index in self.taps:
                tapped.append(x)
        return F.rms_norm(x, (s.width,), self._norm, s.epsilon), tapped

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [N, D], as `forward` returns it -> [N, V]."""
        return self._head(hidden)


def turns(shape: Shape) -> Tensor:
    """The rotation of every position and pair, as unit complex numbers [context, E/2]."""
    rate = shape.rope_base ** -(torch.arange(0, shape.head_width, 2).float() / shape.head_width)
    angle = torch.outer(torch.arange(shape.context).float(), rate)
    return torch.polar(torch.ones_like(angle), angle)
