"""Keys and values of many rows in one slab: every pass over them equals a plain pass over each text alone."""

from collections.abc import Sequence
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from backends.medusa.kv import Pass, Slab, Span
from backends.medusa.model import Llama
from backends.medusa.tree import ancestors
from tests.support.llamas import tiny_llama
from tests.support.plain_decoding import computed

CLOSE = 1e-5
LENGTH = 48

tiny = cache(tiny_llama)  # by its layers and its seed
tokens = st.integers(0, 96)
texts = st.lists(tokens, min_size=1, max_size=20)
trees = st.integers(0, 9).flatmap(
    lambda size: st.tuples(*(st.tuples(tokens, st.integers(0, node)) for node in range(size)))
)
Row = tuple[list[int], tuple[int, tuple[tuple[int, int], ...]]]
rows = st.lists(st.tuples(texts, st.tuples(tokens, trees)), min_size=1, max_size=4)


def slab_of(model: Llama, seats: int = 4) -> Slab:
    return Slab(model.shape, seats, LENGTH, torch.float32, torch.device("cpu"))


def passed(model: Llama, slab: Slab, spans: list[Span], ids: list[Sequence[int]], depths: list[list[int]]) -> Tensor:
    """Logits of one pass, [N, V]."""
    positions = [span.length + depth for span, own in zip(spans, depths, strict=True) for depth in own]
    flat = torch.tensor([token for own in ids for token in own])
    hidden, _ = model.forward(flat, torch.tensor(positions), Pass(slab, spans))
    return model.logits(hidden)


def prefill(model: Llama, slab: Slab, seats: Sequence[int], prompts: list[list[int]]) -> Tensor:
    spans = [Span(seat, 0, len(prompt)) for seat, prompt in zip(seats, prompts, strict=True)]
    return passed(model, slab, spans, list(prompts), [list(range(len(prompt))) for prompt in prompts])


def nodes_of(row: Row) -> tuple[list[int], list[int], list[int]]:
    """Tokens, parents and depths of a row's tree."""
    _, (root, tree) = row
    ids, parents, depths = [root], [-1], [0]
    for token, parent in tree:
        ids.append(token)
        parents.append(parent)
        depths.append(depths[parent] + 1)
    return ids, parents, depths


def path_to(parents: list[int], node: int) -> list[int]:
    path: list[int] = []
    while node >= 0:
        path.insert(0, node)
        node = parents[node]
    return path


def verified(model: Llama, slab: Slab, seats: Sequence[int], given_rows: list[Row]) -> list[Tensor]:
    """Each row's logits, after one pass over all prompts and one over all trees."""
    prefill(model, slab, seats, [prompt for prompt, _ in given_rows])
    trees = [nodes_of(row) for row in given_rows]
    spans = [
        Span(seat, len(prompt), len(ids), ancestors(parents))
        for seat, (prompt, _), (ids, parents, _) in zip(seats, given_rows, trees, strict=True)
    ]
    logits = passed(model, slab, spans, [ids for ids, _, _ in trees], [depths for _, _, depths in trees])
    return list(logits.split([len(ids) for ids, _, _ in trees]))


@given(rows, st.integers(0, 2))
@settings(max_examples=40)
def test_every_node_s_logits_are_those_of_its_path_alone(given_rows: list[Row], seed: int) -> None:
    """Rows of different lengths in one pass, each with a tree of its own."""
    model = tiny((), seed)
    for row, logits in zip(
        given_rows, verified(model, slab_of(model), range(4)[: len(given_rows)], given_rows), strict=True
    ):
        ids, parents, _ = nodes_of(row)
        for node in range(len(ids)):
            text = [*row[0], *(ids[each] for each in path_to(parents, node))]
            torch.testing.assert_close(logits[node], computed(model, text).logits[-1], atol=CLOSE, rtol=CLOSE)


@given(rows, st.data())
@settings(max_examples=40)
def test_after_the_move_a_seat_holds_what_a_fresh_prefill_of_the_same_text_does(
    given_rows: list[Row], data: st.DataObject
) -> None:
    model = tiny()
    slab = slab_of(model)
    verified(model, slab, range(len(given_rows)), given_rows)
    moves, accepted = [], []
    for seat, row in enumerate(given_rows):
        ids, parents, _ = nodes_of(row)
        path = path_to(parents, data.draw(st.integers(0, len(ids) - 1)))
        moves += [(seat, len(row[0]) + node, len(row[0]) + place) for place, node in enumerate(path)]
        accepted.append([*row[0], *(ids[node] for node in path)])
    slab.gather(moves)
    for seat, text in enumerate(accepted):
        kept = slab.slice(seat, 0, len(text))
        torch.testing.assert_close(kept, computed(model, text).kept, atol=CLOSE, rtol=CLOSE)


@given(rows)
@settings(max_examples=30)
def test_a_row_s_numbers_do_not_depend_on_who_shares_the_pass_nor_on_its_seat(given_rows: list[Row]) -> None:
    """To the bit."""
    model = tiny()
    together = verified(model, slab_of(model), range(len(given_rows)), given_rows)
    for row, logits in zip(given_rows, together, strict=True):
        assert torch.equal(verified(model, slab_of(model), [3], [row])[0], logits)


@given(texts, st.lists(st.integers(1, 7), min_size=1, max_size=20))
@settings(max_examples=30)
def test_a_prompt_in_parts_is_the_prompt_as_a_whole(prompt: list[int], sizes: list[int]) -> None:
    model = tiny()
    slab, at = slab_of(model), 0
    found = []
    for size in [*sizes, len(prompt)]:
        part = prompt[at : at + size]
        if part:
            span = Span(2, at, len(part))
            found.append(passed(model, slab, [span], [part], [list(range(len(part)))]))
            at += len(part)
    whole = computed(model, prompt)
    torch.testing.assert_close(torch.cat(found), whole.logits, atol=CLOSE, rtol=CLOSE)
    torch.testing.assert_close(slab.slice(2, 0, len(prompt)), whole.kept, atol=CLOSE, rtol=CLOSE)


def test_what_a_seat_held_before_is_never_seen() -> None:
    model = tiny()
    slab = slab_of(model)
    slab.kept.fill_(float("nan"))
    logits = verified(model, slab, [1], [([5, 6, 7], (8, ((9, 0), (10, 0), (11, 1))))])[0]
    assert not logits.isnan().any()


def test_half_precision_works_with_masks_too() -> None:
    weights_as = tiny_llama()
    slab = Slab(weights_as.shape, 1, LENGTH, torch.bfloat16, torch.device("cpu"))
    spans = [Span(0, 0, 3, ancestors([-1, 0, 0]))]
    keys = torch.randn(3, 2 * 2 * 8).bfloat16()
    assert Pass(slab, spans).attend(0, torch.randn(3, 32).bfloat16(), keys).dtype == torch.bfloat16


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_moves_happen_all_at_once(wanted: list[tuple[int, int, int]]) -> None:
    """A place may be another's source, and what is not named stays."""
    slab = slab_of(tiny())
    slab.kept.copy_(torch.arange(slab.kept.numel()).view(slab.kept.shape))
    moves = list({(seat, new): (seat, old, new) for seat, old, new in wanted}.values())
    before = slab.kept.clone()
    slab.gather(moves)
    for seat, old, new in moves:
        assert torch.equal(slab.slice(seat, new, new + 1), before[:, seat * LENGTH + old : seat * LENGTH + old + 1])
    untouched = sorted(set(range(4 * LENGTH)) - {seat * LENGTH + new for seat, _, new in moves})
    assert torch.equal(slab.kept[:, untouched], before[:, untouched])


def test_seats_are_taken_and_given_back_once() -> None:
    slab = slab_of(tiny(), 2)
    seats = {slab.take(), slab.take()}
    assert (seats, slab.seats) == ({0, 1}, 0)
    with pytest.raises(IndexError):
        slab.take()
    slab.give(1)
    with pytest.raises(ValueError, match="a second time"):
        slab.give(1)
    assert (slab.seats, slab.take()) == (1, 1)
