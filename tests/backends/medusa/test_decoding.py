"""One request's decoding, step by step, with a model that says what the test wants."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.medusa.candidates import HEADS, LOOKUP, Candidates
from backends.medusa.decoding import LONGEST_LOOKUP, Decoding, Request
from backends.medusa.drafting import Draft
from backends.medusa.tree import Tree, ancestors
from backends.medusa.trust import Trust

SEAT = 2
STATES = torch.zeros(1, 4)
tokens = st.integers(0, 3)
texts = st.lists(tokens, min_size=1, max_size=12)


def begun(
    prompt: Sequence[int] = (1, 2, 3), first: int = 0, most_tokens: int = 50, ends: Collection[int] = ()
) -> Decoding:
    row = Decoding(Request(prompt=prompt, most_tokens=most_tokens, ends=ends), SEAT)
    row.prefilled(len(prompt))
    row.begin(first, STATES)
    return row


def tree_of(row: Decoding, steps: list[tuple[int, int]]) -> Candidates:
    found = Candidates.after(row.root)
    for place, token in steps:
        found.add(place % len(found), token, 0.9, HEADS)
    return found


def saying(choices: Sequence[int]) -> Callable[[int, Collection[int]], int]:
    return lambda node, _: choices[node]


def paths_of(candidates: Candidates) -> list[list[int]]:
    paths = [[0]]
    for node in range(1, len(candidates)):
        paths.append([*paths[candidates.parents[node]], node])
    return paths


@given(texts, st.integers(1, 5))
def test_the_parts_of_a_prompt_are_the_prompt_in_order(prompt: list[int], most: int) -> None:
    row = Decoding(Request(prompt=prompt, most_tokens=1), SEAT)
    fed: list[int] = []
    while row.prefilling:
        work = row.prefill(most)
        assert 1 <= len(work.tokens) <= most
        assert work.positions == list(range(len(fed), len(fed) + len(work.tokens)))
        assert (work.span.seat, work.span.length, work.span.count) == (SEAT, len(fed), len(work.tokens))
        fed += work.tokens
        row.prefilled(len(work.tokens))
        assert row.ids == fed
    assert fed == prompt


def test_a_prompt_whose_beginning_is_there_goes_on_behind_it() -> None:
    row = Decoding(Request(prompt=[5, 6, 7, 8], most_tokens=1), SEAT, 2)
    assert (row.prefill(9).tokens, row.prefill(9).positions) == ([7, 8], [2, 3])


def test_heads_and_lookup_meet_in_one_tree() -> None:
    row = begun([1, 2, 8, 9, 1], first=2)
    draft = Draft([[2, 8, 5, 4]], [[1.0, 0.8, 0.5, 0.4]])
    trust = Trust()
    found = row.propose(Tree([(0,), (1,), (0, 0)]), draft, 0, trust, look=True)
    assert (found.tokens[:5], row.agreed) == ([2, 8, 5, 4, 9], 2)
    assert found.sources[:5] == [HEADS, HEADS, HEADS, HEADS, LOOKUP]
    assert max(found.depths) == LONGEST_LOOKUP
    alone = row.propose(None, None, 0, trust, look=False)
    assert (alone.tokens, row.agreed) == ([2], 0)


@dataclass
class Step:
    row: Decoding
    new: list[int]
    taken: list[int]
    moves: list[tuple[int, int, int]]


def stepped(row: Decoding, candidates: Candidates, choices: Sequence[int], kept: list[int] | None = None) -> Step:
    row.verify(candidates, list(range(len(candidates))) if kept is None else kept)
    new = row.accept(saying(choices))
    taken, moves = row.commit(new, STATES)
    return Step(row, new, taken, moves)


steps_of = st.lists(st.tuples(st.integers(0, 99), tokens), max_size=10)
choices_of = st.lists(tokens, min_size=11, max_size=11)


@given(steps_of, st.sets(st.integers(1, 10)))
def test_nodes_stand_at_the_position_of_their_depth_and_see_their_ancestors(
    steps: list[tuple[int, int]], wanted: set[int]
) -> None:
    row = begun()
    candidates = tree_of(row, steps)
    kept = [0]
    for node in sorted(wanted & set(range(len(candidates)))):
        if candidates.parents[node] in kept:
            kept.append(node)
    work = row.verify(candidates, kept)
    assert work.tokens == [candidates.tokens[node] for node in kept]
    assert work.positions == [row.length + candidates.depths[node] for node in kept]
    assert (work.span.seat, work.span.length, work.span.count) == (SEAT, row.length, len(kept))
    if len(kept) > 1:
        assert work.span.sees is not None
        assert torch.equal(
            work.span.sees, ancestors([candidates.parents[node] for node in range(len(candidates))])[kept][:, kept]
        )


@given(steps_of, choices_of)
def test_the_longest_path_of_the_models_own_choices_is_accepted(
    steps: list[tuple[int, int]], choices: list[int]
) -> None:
    row = begun()
    candidates = tree_of(row, steps)
    step = stepped(row, candidates, choices)
    right = [
        path
        for path in paths_of(candidates)
        if all(choices[before] == candidates.tokens[node] for before, node in pairwise(path))
    ]
    assert row.path == max(right, key=len)
    assert step.new == [*(candidates.tokens[node] for node in row.path[1:]), choices[row.path[-1]]]


@given(steps_of, choices_of, st.integers(2, 8), st.sets(tokens, max_size=2))
def test_a_text_is_cut_at_its_end_even_inside_an_accepted_path(
    steps: list[tuple[int, int]], choices: list[int], most_tokens: int, ends: set[int]
) -> None:
    row = begun(first=9, most_tokens=most_tokens, ends=ends)
    step = stepped(row, tree_of(row, steps), choices)
    until = next((place for place, token in enumerate(step.new, 1) if token in ends), len(step.new))
    until = min(until, most_tokens - 1)
    assert step.taken == step.new[:until]
    assert row.output == [9, *step.taken]
    if step.taken[-1] in ends:
        assert row.finished == "stop"
    else:
        assert row.finished == ("length" if len(row.output) == most_tokens else None)


@given(steps_of, choices_of, st.integers(2, 8), st.sets(tokens, max_size=2))
def test_what_lies_at_the_seat_is_the_text_but_for_a_root_that_is_not_computed(
    steps: list[tuple[int, int]], choices: list[int], most_tokens: int, ends: set[int]
) -> None:
    """Played on a list, whose places stand for keys and values."""
    row = begun(first=9, most_tokens=most_tokens, ends=ends)
    candidates = tree_of(row, steps)
    work = row.verify(candidates, list(range(len(candidates))))
    seat = [*row.request.prompt, *work.tokens]
    _, moves = row.commit(row.accept(saying(choices)), STATES)
    before = list(seat)
    for place, old, new in moves:
        assert place == SEAT
        assert new < old
        seat[new] = before[old]
    text = [*row.request.prompt, *row.output]
    assert row.ids == seat[: row.length] == text[: row.length]
    assert row.length in ({len(text) - 1, len(text)} if row.finished else {len(text) - 1})


@given(texts, st.lists(st.tuples(steps_of, choices_of), max_size=5))
def test_the_lookup_knows_the_text_as_far_as_it_is_committed(
    prompt: list[int], steps: list[tuple[list[tuple[int, int]], list[int]]]
) -> None:
    row = begun(prompt, most_tokens=200)
    for tree, choices in steps:
        stepped(row, tree_of(row, tree), choices)
    fresh = begun([*prompt, *row.output[:-1]], row.root)
    assert row.lookup.find(row.root, 5) == fresh.lookup.find(fresh.root, 5)


@pytest.mark.parametrize("most_tokens", [2, 3, 4, 9])
@pytest.mark.parametrize("look", [True, False])
def test_guesses_after_which_nothing_is_asked_for_are_not_made(most_tokens: int, look: bool) -> None:
    """Even if all were right, none would be cut."""
    row = begun([1, 1], first=1, most_tokens=most_tokens)
    tree = Tree([(0,) * depth for depth in range(1, 6)])
    draft = None if look else Draft([[1] * 6], [[0.9**depth for depth in tree.depths]])
    candidates = row.propose(tree, draft, 0, Trust(), look=look)
    assert max(candidates.depths) == min(8 if look else 5, most_tokens - 2)
    step = stepped(row, candidates, [1] * len(candidates))
    assert step.taken == step.new


def test_one_token_is_done_as_the_prompt_is() -> None:
    row = begun(first=7, most_tokens=1)
    assert (row.output, row.finished, row.length) == ([7], "length", 3)


def test_an_end_right_after_the_prompt_is_the_end() -> None:
    assert begun(first=7, ends={7}).finished == "stop"


def test_rows_are_themselves_whatever_they_hold() -> None:
    assert begun() != begun()
