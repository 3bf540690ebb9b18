"""Trees of guesses: their shape, who sees whom, and which tree is the best."""

from collections import Counter
from itertools import combinations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.medusa.tree import Path, Tree, ancestors, chosen, counted, expected_tokens

ranks = st.lists(st.tuples(*[st.integers(-1, 2)] * 3), min_size=1, max_size=30)
parent_lists = st.integers(0, 12).flatmap(lambda size: st.tuples(*(st.integers(0, node) for node in range(size))))


def trees() -> st.SearchStrategy[Tree]:
    """Of up to 14 nodes, made by hanging guess after guess on a path that is there."""

    def grown(steps: list[tuple[int, int]]) -> Tree:
        paths: list[Path] = [()]
        for place, rank in steps:
            paths.append((*paths[place % len(paths)], rank))
        return Tree(path for path in paths if path)

    return st.lists(st.tuples(st.integers(0, 99), st.integers(0, 3)), max_size=13).map(grown)


@given(trees())
def test_a_parent_comes_before_its_children_and_is_their_path_without_the_end(tree: Tree) -> None:
    assert (tree.paths[0], tree.parents[0], tree.depths[0]) == ((), -1, 0)
    for node in range(1, len(tree)):
        assert tree.parents[node] < node
        assert tree.paths[tree.parents[node]] == tree.paths[node][:-1]
        assert tree.depths[node] == tree.depths[tree.parents[node]] + 1
    assert len(set(tree.paths)) == len(tree)


def test_a_path_without_its_parent_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"\(1, 0\) has no parent"):
        Tree([(0,), (1, 0)])


@given(trees())
def test_the_levels_name_every_node_once_under_its_parent_with_its_rank(tree: Tree) -> None:
    named = [
        (depth, parent, child, rank)
        for depth, level in enumerate(tree.levels, 1)
        for parent, children in level.items()
        for child, rank in children
    ]
    nodes = range(1, len(tree))
    assert sorted(named) == [(tree.depths[node], tree.parents[node], node, tree.paths[node][-1]) for node in nodes]


def test_a_tree_of_the_root_alone_has_no_levels() -> None:
    assert Tree([]).levels == []


@given(ranks)
def test_a_true_continuation_counts_for_every_beginning_of_it(rows: list[tuple[int, ...]]) -> None:
    found = counted(torch.tensor(rows))
    for path in {path for size in (1, 2, 3) for path in product(range(3), repeat=size)}:
        assert found[path] == sum(row[: len(path)] == path for row in rows)


@given(ranks, st.integers(1, 5))
def test_no_connected_tree_of_the_size_expects_more_than_the_chosen_one(rows: list[tuple[int, ...]], size: int) -> None:
    counts = counted(torch.tensor(rows))
    best = max(
        (
            sum(counts[path] for path in paths)
            for paths in combinations(sorted(counts), min(size - 1, len(counts)))
            if all(len(path) == 1 or path[:-1] in paths for path in paths)
        ),
        default=0,
    )
    tree = chosen(counts, size)
    assert len(tree) <= size
    assert expected_tokens(tree, counts, len(rows)) == pytest.approx(1 + best / len(rows))


def test_of_equal_paths_the_shorter_is_chosen() -> None:
    assert chosen(Counter({(0,): 2, (0, 0): 2, (1,): 2}), 3).paths == [(), (0,), (1,)]


@given(parent_lists)
def test_a_node_sees_itself_and_its_ancestors_only(parents: tuple[int, ...]) -> None:
    given_parents = [-1, *parents]
    sees = ancestors(given_parents)
    for node in range(len(given_parents)):
        line, at = set(), node
        while at >= 0:
            line.add(at)
            at = given_parents[at]
        assert set(sees[node].nonzero().flatten().tolist()) == line
