"""The forward pass equals the reference's, and a row's numbers do not depend on the rows beside it."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from backends.contract import Chat, Turn
from backends.medusa.model import LEAST_ROWS, Linear, Llama, turns
from backends.medusa.vocabulary import Vocabulary
from backends.medusa.weights import Checkpoint
from tests.support.alone import Alone
from tests.support.llamas import random_weights, tiny_llama, tiny_shape
from tests.support.reference import reference_llama

CLOSE = 2e-4
MOST_ROWS = 130
REAL = {"qkv": (576, 960), "out": (576, 576), "gate_up": (576, 3072), "down": (1536, 576)}  # in, out
HEAD = (576, 49152)

SHAPES = [
    pytest.param({}, id="grouped queries"),
    pytest.param({"kv_heads": 4}, id="as many keys as queries"),
    pytest.param({"kv_heads": 1}, id="one key for all queries"),
    pytest.param({"head_width": 12}, id="heads wider than their share"),
    pytest.param({"heads": 8, "head_width": 2}, id="heads narrower than their share"),
    pytest.param({"layers": 1, "rope_base": 500.0, "epsilon": 1e-3}, id="another base and epsilon"),
]


def run(llama: Llama, *rows: Tensor, start: int = 0) -> tuple[Tensor, list[Tensor]]:
    """Logits and taps of rows that are fed whole."""
    positions = torch.cat([torch.arange(start, start + len(row)) for row in rows])
    hidden, tapped = llama.forward(torch.cat(rows), positions, Alone(llama.shape, [len(row) for row in rows]))
    return llama.logits(hidden), tapped


def some_tokens(count: int, seed: int = 1, vocabulary: int = 97) -> Tensor:
    return torch.randint(vocabulary, (count,), generator=torch.Generator().manual_seed(seed))


def numbers(*size: int, seed: int = 2) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def test_smollm2s_logits_are_the_references(smollm2: Checkpoint, model: Llama, vocabulary: Vocabulary) -> None:
    chat = Chat([Turn("user", "Explain how a cache works, with three examples from daily life.")])
    ids = torch.tensor(vocabulary.chat(chat))
    expected = reference_llama(smollm2.shape, smollm2.weights)(ids[None]).logits[0]
    found, _ = run(model, ids)
    assert (found - expected).abs().max() < CLOSE
    assert torch.equal(found.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("other", SHAPES)
def test_logits_are_the_references_in_any_shape(other: dict[str, int], tied: bool) -> None:
    shape = tiny_shape(**other)
    weights = random_weights(shape, tied=tied)
    ids = some_tokens(40)
    expected = reference_llama(shape, weights)(ids[None]).logits[0]
    found, _ = run(Llama(shape, weights), ids)
    assert (found - expected).abs().max() < CLOSE
    assert expected.std() > 0.1


def test_logits_are_the_references_to_the_last_position_of_the_context() -> None:
    shape = tiny_shape(context=64)
    weights = random_weights(shape)
    ids = some_tokens(64)
    expected = reference_llama(shape, weights)(ids[None]).logits[0]
    assert (run(Llama(shape, weights), ids)[0] - expected).abs().max() < CLOSE


def test_taps_are_the_residual_stream_after_their_layers(tiny: Llama) -> None:
    shape = tiny_shape(layers=4)
    weights = random_weights(shape)
    ids = some_tokens(12)
    streams = reference_llama(shape, weights)(ids[None], output_hidden_states=True).hidden_states
    _, tapped = run(Llama(shape, weights, taps=(0, 2)), ids)
    first, second = tapped
    assert (first - streams[1][0]).abs().max() < CLOSE
    assert (second - streams[3][0]).abs().max() < CLOSE
    assert run(tiny, ids)[1] == []


def test_taps_do_not_change_the_logits() -> None:
    ids = some_tokens(9)
    assert torch.equal(run(tiny_llama(), ids)[0], run(tiny_llama(taps=(0, 1)), ids)[0])


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_a_rows_logits_are_bitwise_the_same_whoever_shares_the_batch(lengths: list[int], seed: int) -> None:
    llama = tiny_llama()
    rows = [some_tokens(length, seed + index) for index, length in enumerate(lengths)]
    together, _ = run(llama, *rows)
    for row, found in zip(rows, together.split(lengths), strict=True):
        assert torch.equal(found, run(llama, row)[0])


def test_smollm2s_rows_are_bitwise_the_same_whoever_shares_the_batch(model: Llama) -> None:
    rows = [some_tokens(length, length, model.shape.vocabulary) for length in (1, 5, 17)]
    together, _ = run(model, *rows)
    for row, found in zip(rows, together.split([1, 5, 17]), strict=True):
        assert torch.equal(found, run(model, row)[0])


def test_logits_depend_on_how_far_tokens_lie_apart_and_not_on_where(tiny: Llama) -> None:
    ids = some_tokens(20)
    here, there = run(tiny, ids)[0], run(tiny, ids, start=100)[0]
    assert (here - there).abs().max() < CLOSE
    assert (here - run(tiny, ids.flip(0))[0].flip(0)).abs().max() > 0.1


@pytest.mark.parametrize("name", REAL)
def test_a_packed_row_is_bitwise_the_same_in_a_call_of_any_size(name: str) -> None:
    inputs, outputs = REAL[name]
    linear = Linear(numbers(outputs, inputs))
    x = numbers(MOST_ROWS, inputs, seed=3)
    whole = linear(x)
    assert [rows for rows in range(1, MOST_ROWS + 1) if not torch.equal(linear(x[:rows]), whole[:rows])] == []


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 16, 17, 33])
def test_a_row_of_the_output_matrix_is_bitwise_the_same_in_a_call_of_any_size(model: Llama, rows: int) -> None:
    x = numbers(33, HEAD[0])
    assert torch.equal(model.logits(x[:rows]), model.logits(x)[:rows])


@given(picked=st.lists(st.integers(0, MOST_ROWS - 1), min_size=1, max_size=MOST_ROWS))
@settings(max_examples=50)
def test_a_packed_row_is_bitwise_the_same_at_any_place_and_among_any_others(picked: list[int]) -> None:
    linear = Linear(numbers(96, 64))
    x = numbers(MOST_ROWS, 64, seed=3)
    assert torch.equal(linear(x[picked]), linear(x)[picked])


@pytest.mark.parametrize("rows", [1, LEAST_ROWS - 1, LEAST_ROWS, 40])
def test_packed_and_plain_products_are_equal_but_for_rounding(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, x = numbers(48, 32), numbers(rows, 32, seed=3)
    packed = Linear(weight)(x)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    plain = Linear(weight)(x)
    assert packed.shape == plain.shape == (rows, 48)
    assert (packed - plain).abs().max() < 1e-4


def test_bf16_runs_and_is_only_near(tiny: Llama) -> None:
    weights = {name: value.bfloat16() for name, value in random_weights(tiny.shape).items()}
    ids = some_tokens(30)
    exact, _ = run(tiny, ids)
    found, _ = run(Llama(tiny.shape, weights), ids)
    assert found.dtype is torch.bfloat16
    apart = (found.float() - exact).abs().max()
    assert CLOSE < apart < 0.1 * exact.abs().max()


def test_a_position_turns_each_pair_by_its_own_rate() -> None:
    shape = replace(tiny_shape(), head_width=4, rope_base=100.0, context=3)
    expected = torch.tensor([[0.0, 0.0], [1.0, 0.1], [2.0, 0.2]])
    assert torch.allclose(turns(shape).angle(), expected)
    assert torch.allclose(turns(shape).abs(), torch.ones(3, 2))
