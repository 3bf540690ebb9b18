"""The loss and its gradient, against the plain way to compute them."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from backends.medusa.heads import KINDS, unrolled
from backends.train_heads.corpus import own_positions
from backends.train_heads.distilling import Teacher, log_partition, loss_of
from backends.train_heads.recipe import Recipe

WIDTH, DEPTH, VOCABULARY = 8, 3, 50
RECIPE = Recipe(depth=DEPTH, soft=0.3, decay=0.7)

Batch = tuple[Tensor, Tensor, list[int]]


def dice() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def a_batch(counts: tuple[int, ...] = (6, 2, 9)) -> Batch:
    total = sum(counts) + DEPTH * len(counts)
    tokens = torch.randint(VOCABULARY, (total,), generator=dice())
    return torch.randn(total, 3, WIDTH, generator=dice()), tokens, list(counts)


def a_teacher(ids: Tensor, dtype: torch.dtype = torch.float32) -> Teacher:
    return Teacher(torch.randn(VOCABULARY, WIDTH, generator=dice()), ids, dtype)


def fresh(kind: str = "hydra") -> dict[str, Tensor]:
    torch.manual_seed(1)
    weights = KINDS[kind].fresh(WIDTH, DEPTH, 2, 12)
    return {name: (weight + 0.1 * torch.randn_like(weight)).requires_grad_() for name, weight in weights.items()}


def plain_loss(
    weights: dict[str, Tensor], teacher: Teacher, batch: Batch, kind: str = "hydra", recipe: Recipe = RECIPE
) -> Tensor:
    """Two cross entropies over whole distributions, as the definition says."""
    states, tokens, counts = batch
    heads, at = KINDS[kind](weights), own_positions(counts, DEPTH)
    sure = (states[:, 0] @ teacher.output.T).softmax(-1)
    before = torch.stack([teacher.embedding[tokens[at + k]] for k in range(DEPTH)], 1)
    total = torch.zeros(())
    for k, state in enumerate(unrolled(heads, states[at], before)):
        said = (state @ teacher.output.T).log_softmax(-1)
        places = [(row, (teacher.ids == token).nonzero()) for row, token in enumerate(tokens[at + k + 1])]
        known = [(row, int(place)) for row, place in places if len(place)]
        hard = -torch.stack([said[row, place] for row, place in known]).mean() if known else torch.zeros(())
        soft = -(sure[at + k + 1] * said).sum(-1).mean()
        total = total + recipe.decay**k * ((1 - recipe.soft) * hard + recipe.soft * soft)
    return total


@pytest.mark.parametrize("kind", ["hydra", "medusa"])
@pytest.mark.parametrize("ids", [torch.arange(VOCABULARY), torch.arange(3, 40, 2)], ids=["all", "some"])
def test_loss_and_gradients_are_those_of_the_definition(kind: str, ids: Tensor) -> None:
    mine, plain, batch = fresh(kind), fresh(kind), a_batch()
    loss, each = loss_of(KINDS[kind](mine), a_teacher(ids), batch, RECIPE)
    loss.backward()
    wanted = plain_loss(plain, a_teacher(ids), batch, kind)
    wanted.backward()
    torch.testing.assert_close(loss, wanted, atol=1e-4, rtol=1e-5)
    assert loss.item() == pytest.approx(sum(RECIPE.decay**k * own for k, own in enumerate(each)), rel=1e-5)
    for name, weight in mine.items():
        torch.testing.assert_close(weight.grad, plain[name].grad, atol=1e-5, rtol=1e-4)


def test_in_bfloat16_the_gradients_are_near_those_in_float32() -> None:
    ids, batch = torch.arange(3, 40, 2), a_batch()
    rounded, exact = fresh(), fresh()
    teacher = a_teacher(ids)
    teacher.embedding = teacher.embedding.bfloat16().float()
    teacher.output = teacher.embedding[ids]
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = loss_of(KINDS["hydra"](rounded), a_teacher(ids, torch.bfloat16), batch, RECIPE)
    loss.backward()
    loss_of(KINDS["hydra"](exact), teacher, batch, RECIPE)[0].backward()
    for name, weight in exact.items():
        assert weight.grad is not None
        assert rounded[name].grad is not None
        assert (rounded[name].grad - weight.grad).norm() < 0.03 * weight.grad.norm(), name


def test_a_token_that_the_heads_cannot_say_has_no_part_in_the_hard_half() -> None:
    hard, (states, tokens, counts) = Recipe(depth=DEPTH, soft=0.0), a_batch((5,))
    weights, teacher = fresh(), a_teacher(torch.arange(10))
    tokens = tokens % 10
    tokens[4] = 30
    batch = (states, tokens, counts)
    loss, _ = loss_of(KINDS["hydra"](weights), teacher, batch, hard)
    torch.testing.assert_close(loss, plain_loss(weights, teacher, batch, recipe=hard), atol=1e-4, rtol=1e-5)


def test_with_no_known_token_at_all_only_the_soft_half_is_left() -> None:
    states, tokens, counts = a_batch((5,))
    weights = fresh()
    loss, _ = loss_of(KINDS["hydra"](weights), a_teacher(torch.arange(5)), (states, tokens % 5 + 20, counts), RECIPE)
    loss.backward()
    assert torch.isfinite(loss)
    hard_only = Recipe(depth=DEPTH, soft=0.0)
    nothing, each = loss_of(
        KINDS["hydra"](weights), a_teacher(torch.arange(5)), (states, tokens % 5 + 20, counts), hard_only
    )
    assert nothing == 0
    assert each == [0.0] * DEPTH


def test_the_log_partition_is_logsumexp_with_its_gradient() -> None:
    states = torch.randn(7, WIDTH, generator=dice(), requires_grad=True)
    output = torch.randn(20, WIDTH, generator=dice())
    found = log_partition(states, output)
    wanted = F.linear(states, output).logsumexp(-1)
    torch.testing.assert_close(found, wanted)
    share = torch.rand(7, generator=dice())
    torch.testing.assert_close(
        *(torch.autograd.grad((share * value).sum(), states)[0] for value in (found, wanted)), atol=1e-5, rtol=1e-4
    )
