"""Decoding heads: what they compute, and what they begin as."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from backends.medusa.heads import KINDS, HydraHeads, MedusaHeads, unrolled

WIDTH, DEPTH, TAPS, INNER, ROWS = 12, 3, 2, 5, 4


def numbers(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def random_weights(kind: str) -> dict[str, Tensor]:
    fresh = KINDS[kind].fresh(WIDTH, DEPTH, TAPS, INNER)
    return {name: 0.3 * numbers(*weight.shape, seed=index) for index, (name, weight) in enumerate(fresh.items())}


STATES, TOKENS = numbers(ROWS, 1 + TAPS, WIDTH, seed=90), numbers(ROWS, DEPTH, WIDTH, seed=91)


@pytest.mark.parametrize("kind", KINDS)
def test_an_untrained_head_says_what_the_base_says(kind: str) -> None:
    heads = KINDS[kind](KINDS[kind].fresh(WIDTH, DEPTH, TAPS, INNER))
    assert heads.depth == DEPTH
    for state in unrolled(heads, STATES, TOKENS):
        assert torch.equal(state, STATES[:, 0])


def test_a_medusa_head_is_one_residual_block_on_the_hidden_state_alone() -> None:
    weights = random_weights("medusa")
    for index, state in enumerate(unrolled(MedusaHeads(weights), STATES, TOKENS)):
        hidden = STATES[:, 0]
        torch.testing.assert_close(state, hidden + F.silu(hidden @ weights[f"block.{index}"].T))


def test_hydra_heads_build_on_each_other_and_see_the_tokens_before() -> None:
    weights = random_weights("hydra")
    state, beside = STATES[:, 0], normed(STATES[:, 1:]).flatten(1)
    for index, found in enumerate(unrolled(HydraHeads(weights), STATES, TOKENS)):
        x = torch.cat([normed(state), normed(TOKENS[:, index]), beside], -1)
        gate, up = (x @ weights[f"gate_up.{index}"].T).split(INNER, -1)
        state, beside = state + (F.silu(gate) * up) @ weights[f"down.{index}"].T, torch.empty(ROWS, 0)
        torch.testing.assert_close(found, state)


def normed(x: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + torch.finfo(torch.float32).eps).sqrt()


def test_what_a_hydra_head_adds_does_not_grow_with_the_state_before() -> None:
    heads = HydraHeads(random_weights("hydra"))
    added = [heads.next(1, size * STATES[:, 0], STATES, TOKENS[:, 1]) - size * STATES[:, 0] for size in (1, 100)]
    torch.testing.assert_close(*added, rtol=1e-2, atol=1e-3)


def test_medusa_heads_do_not_look_at_tokens_and_hydra_heads_look_back_only() -> None:
    for kind, sees in (("medusa", [False, False, False]), ("hydra", [False, True, True])):
        heads, other = KINDS[kind](random_weights(kind)), TOKENS.clone()
        other[:, 1] += 1
        pairs = zip(unrolled(heads, STATES, TOKENS), unrolled(heads, STATES, other), strict=True)
        assert [not torch.equal(*pair) for pair in pairs] == sees


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_every_weight(kind: str) -> None:
    with torch.enable_grad():
        weights = {name: weight.requires_grad_() for name, weight in random_weights(kind).items()}
        torch.stack(unrolled(KINDS[kind](weights), STATES, TOKENS)).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in weights.values())
