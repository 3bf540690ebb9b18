"""The budget of a step, against every set of nodes that could be chosen."""

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.medusa.budget import everything, share
from backends.medusa.candidates import HEADS, Candidates


def candidates(most: int = 4) -> st.SearchStrategy[Candidates]:
    def filled(steps: list[tuple[int, float]]) -> Candidates:
        found = Candidates.after(0)
        for token, (place, score) in enumerate(steps):
            found.add(place % len(found), token, score, HEADS)
        return found

    return st.lists(st.tuples(st.integers(0, 9), st.floats(0.01, 1)), max_size=most).map(filled)


some_rows = st.lists(candidates(), min_size=1, max_size=3)
costs = st.lists(st.floats(0.01, 1), min_size=16, max_size=16)
Kept = list[tuple[int, int]]


def connected_sets(rows: list[Candidates]) -> list[Kept]:
    nodes = [(index, node) for index, row in enumerate(rows) for node in range(1, len(row))]
    sets = chain.from_iterable(combinations(nodes, size) for size in range(len(nodes) + 1))
    return [
        list(kept)
        for kept in sets
        if all(rows[index].parents[node] == 0 or (index, rows[index].parents[node]) in kept for index, node in kept)
    ]


def expected(rows: list[Candidates], kept: Kept) -> float:
    return len(rows) + sum(rows[index].scores[node] for index, node in kept)


def guesses(kept: list[list[int]]) -> Kept:
    return [(index, node) for index, nodes in enumerate(kept) for node in nodes[1:]]


@given(some_rows, costs, st.floats(0, 1), st.integers(0, 12))
def test_no_other_set_of_nodes_yields_more_tokens_a_second(
    rows: list[Candidates], seconds: list[float], spent: float, most: int
) -> None:
    """Whatever a step costs by its number of nodes, be it rising or not."""
    best = max(
        expected(rows, kept) / (spent + seconds[len(rows) + len(kept)])
        for kept in connected_sets(rows)
        if not kept or len(rows) + len(kept) <= most
    )
    choice = share(rows, seconds.__getitem__, spent=spent, most=most)
    kept = guesses(choice.kept)
    assert choice.rate == pytest.approx(best)
    assert choice.tokens == pytest.approx(expected(rows, kept))
    assert choice.tokens / (spent + seconds[len(rows) + len(kept)]) == pytest.approx(best)
    assert choice.plain_rate == pytest.approx(len(rows) / seconds[len(rows)])


@given(some_rows, costs, st.integers(0, 12))
def test_every_root_stays_every_parent_too_and_the_limit_holds(
    rows: list[Candidates], seconds: list[float], most: int
) -> None:
    for choice in (share(rows, seconds.__getitem__, most=most), everything(rows, most)):
        assert all(kept[0] == 0 and kept == sorted(set(kept)) for kept in choice.kept)
        assert guesses(choice.kept) in [sorted(kept) for kept in connected_sets(rows)]
        assert sum(map(len, choice.kept)) <= max(most, len(rows))


@given(some_rows)
def test_everything_is_everything_as_long_as_there_is_room(rows: list[Candidates]) -> None:
    choice = everything(rows)
    assert choice.kept == [list(range(len(row))) for row in rows]
    assert choice.tokens == pytest.approx(expected(rows, guesses(choice.kept)))


def test_a_step_that_costs_the_same_whatever_it_verifies_verifies_all() -> None:
    row = Candidates.after(0)
    row.add_chain([1, 2, 3], 0.5, 0.5)
    assert share([row], lambda _: 1.0).kept == [[0, 1, 2, 3]]


def test_where_every_node_costs_a_step_nothing_is_tried() -> None:
    row = Candidates.after(0)
    row.add_chain([1, 2, 3], 0.9, 0.9)
    assert share([row], float).kept == [[0]]


def test_time_that_drafting_took_already_makes_more_nodes_worth_their_time() -> None:
    row = Candidates.after(0)
    row.add_chain([1, 2], 0.4, 0.4)
    assert share([row], lambda nodes: 1 + 0.5 * nodes).kept == [[0, 1]]
    assert share([row], lambda nodes: 1 + 0.5 * nodes, spent=5.0).kept == [[0, 1, 2]]
