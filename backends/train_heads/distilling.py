"""What the heads are to learn: the token that came, and how sure the base was of it.

The loss of head k is half the cross entropy with the token that came, half that with the base's own distribution there,
and has the weight 0.8^k in the sum (Cai et al. 2024). With a target t over the vocabulary both are

    sum(t) * logsumexp(W s) - (t W) . s

for a head's state s and the base's output matrix W. So a target costs one product with W, whatever it is; and since W
is not trained, the gradient of the first term, softmax(W s) W, is computed at once with it and the logits are
forgotten.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from backends.medusa.heads import Heads, unrolled
from backends.train_heads.corpus import own_positions
from backends.train_heads.recipe import Recipe


class Teacher:
    """The base's embedding and output matrix, as the heads see them. bfloat16, if nothing else is asked for."""

    def __init__(self, embedding: Tensor, ids: Tensor, dtype: torch.dtype = torch.bfloat16) -> None:
        self.embedding = embedding.to(dtype)
        self.ids = ids
        self.output = self.embedding[ids].contiguous()  # [size, D]
        self.place = torch.full((embedding.shape[0],), -1)
        self.place[ids] = torch.arange(len(ids))


class LogPartition(torch.autograd.Function):
    """states [N, D], output [V, D] -> logsumexp of the logits [N], float32. No gradient for the output matrix."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, output: Tensor) -> Tensor:
        logits = F.linear(states.to(output.dtype), output)
        chance = logits.softmax(-1)
        ctx.save_for_backward(chance @ output)
        return logits.amax(-1).float() - chance.amax(-1).float().log()  # a fifth of what logsumexp takes

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (expected,) = ctx.saved_tensors
        return gradients[0][:, None] * expected, None


def log_partition(states: Tensor, output: Tensor) -> Tensor:
    found: Tensor = LogPartition.apply(states, output)  # type: ignore[no-untyped-call]
    return found


def loss_of(
    heads: Heads, teacher: Teacher, batch: tuple[Tensor, Tensor, list[int]], recipe: Recipe
) -> tuple[Tensor, list[float]]:
    """The weighted loss, and each head's own. A token that the heads cannot say has no part in the hard half."""
    states, tokens, counts = batch
    at = own_positions(counts, heads.depth)
    sure = F.linear(states[:, 0].to(teacher.output.dtype), teacher.output).softmax(-1) @ teacher.output  # [M, D]
    before = F.embedding(torch.stack([tokens[at + k] for k in range(heads.depth)], 1), teacher.embedding)
    total, each = torch.zeros(()), []
    for k, state in enumerate(unrolled(heads, states[at].float(), before.float())):
        wanted = teacher.place[tokens[at + k + 1]]  # [N]
        known = (wanted >= 0).float()
        hard = (1 - recipe.soft) * known / known.sum().clamp(min=1)  # [N]: each position's share
        soft = recipe.soft / len(at)
        target = hard[:, None] * teacher.output[wanted] + soft * sure[at + k + 1]  # [N, D]
        loss = ((hard + soft) * log_partition(state, teacher.output)).sum() - (target * state).sum()
        total = total + recipe.decay**k * loss
        each.append(loss.item())
    return total, each
