"""Stand-ins for trained heads: one that knows the answers, and real heads of random numbers, which know nothing."""

from collections.abc import Callable, Mapping, Sequence
from random import Random

import torch
from torch import Tensor

from backends.medusa.decoding import Decoding
from backends.medusa.drafting import Draft, Drafter
from backends.medusa.heads import KINDS
from backends.medusa.model import Llama
from backends.medusa.tree import Tree


class Seer:
    """Along one random way through its tree it says the truth, as far as it is right; everywhere else, anything.

    `texts`: the answer by prompt; `rows`: those that are drafted for; `rightness`: the chance that a guess on the way
    is true. `works` is called when it drafts, and `floors` tells how it was asked.
    """

    def __init__(
        self,
        tree: Tree,
        texts: Mapping[tuple[int, ...], Sequence[int]],
        rightness: float = 1.0,
        chance: Random | None = None,
        works: Callable[[], None] = lambda: None,
        vocabulary: int = 97,
    ) -> None:
        self.tree = tree
        self.rows: Callable[[], list[Decoding]] = list
        self.floors: list[float] = []
        self._texts, self._rightness, self._chance = texts, rightness, chance or Random(0)
        self._works, self._vocabulary = works, vocabulary

    def draft(self, states: Tensor, roots: Sequence[int], floor: float = 0.0, worth: float = 0.0) -> Draft:
        self._works()
        self.floors.append(floor)
        rows = self.rows()
        assert [row.root for row in rows] == list(roots)
        assert states.shape[0] == len(rows)
        scores = [[0.8**depth for depth in self.tree.depths] for _ in rows]
        return Draft([self._guessed(row) for row in rows], scores, max(self.tree.depths))

    def _guessed(self, row: Decoding) -> list[int]:
        tree, chance = self.tree, self._chance
        guesses = [chance.randrange(self._vocabulary) for _ in tree.paths]
        truth = self._texts[tuple(row.request.prompt)][len(row.output) :]
        node = 0
        for token in truth:
            children = [child for child, parent in enumerate(tree.parents) if parent == node]
            if not children or chance.random() >= self._rightness:
                break
            node = chance.choice(children)
            guesses[node] = token
        return [row.root, *guesses[1:]]


def untrained(kind: str, model: Llama, tree: Tree, seed: int = 0) -> Drafter:
    """Heads of random numbers, which can say every third token only."""
    dice = torch.Generator().manual_seed(seed)
    fresh = KINDS[kind].fresh(model.shape.width, max(tree.depths), len(model.taps), 16)
    weights = {name: torch.randn(weight.shape, generator=dice) * 0.2 for name, weight in fresh.items()}
    return Drafter(kind, weights, model.embedding, torch.arange(0, model.shape.vocabulary, 3), tree)
