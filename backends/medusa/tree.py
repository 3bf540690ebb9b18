"""Sparse trees of guesses: which guess of which head is worth a try after which.

A path is a tuple of ranks: (0, 2) is the third guess of head 2 after the first guess of head 1. A tree's node 0 is the
root, the base's own next token; the rest are paths of which every beginning is there too. Cai et al. 2024, section
2.3.3.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

import torch
from torch import Tensor

Path = tuple[int, ...]


class Tree:
    """Nodes in order of depth, so that a parent comes before its children. Raises ValueError for an orphan."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths: list[Path] = [(), *sorted(set(map(tuple, paths)), key=lambda path: (len(path), path))]
        place = {path: index for index, path in enumerate(self.paths)}
        orphans = [path for path in self.paths if path and path[:-1] not in place]
        if orphans:
            raise ValueError(f"the path {orphans[0]} has no parent in the tree")
        self.parents = [place[path[:-1]] if path else -1 for path in self.paths]
        self.depths = [len(path) for path in self.paths]

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def levels(self) -> list[dict[int, list[tuple[int, int]]]]:
        """For each depth from 1: the parents of its nodes, each with its children and their ranks."""
        found: list[dict[int, list[tuple[int, int]]]] = [{} for _ in range(max(self.depths))]
        for node, path in enumerate(self.paths[1:], 1):
            found[len(path) - 1].setdefault(self.parents[node], []).append((node, path[-1]))
        return found


def counted(ranks: Tensor) -> Counter[Path]:
    """How often the true continuation went along each path. ranks [N, K]: the rank at which head k had the true token,
    -1 for not among its guesses."""
    found: Counter[Path] = Counter()
    for row in ranks.tolist():
        path: Path = ()
        for rank in row:
            if rank < 0:
                break
            path = (*path, rank)
            found[path] += 1
    return found


def chosen(counts: Counter[Path], size: int) -> Tree:
    """The tree of `size` nodes, root included, with the largest expected number of accepted tokens.

    Taking the most frequent paths is the best choice, not only a greedy one: a path is never more frequent than its
    beginning, so the best `size - 1` paths are a tree.
    """
    order = sorted(counts.items(), key=lambda item: (-item[1], len(item[0]), item[0]))
    return Tree(path for path, _ in order[: size - 1])


def expected_tokens(tree: Tree, counts: Counter[Path], positions: int) -> float:
    """Mean tokens a step when the whole tree is verified: the root always counts."""
    return 1 + sum(counts[path] for path in tree.paths[1:]) / positions


def ancestors(parents: Sequence[int]) -> Tensor:
    """Which node sees which: itself and its ancestors. parents [T], -1 for the root -> bool [T, T]."""
    sees = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            sees[node] |= sees[parent]
    return sees
