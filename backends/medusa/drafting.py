"""Running the heads: from the states that predicted the roots to a tree of guesses with their probabilities.

Drafting needs no exactness: the heads run in bfloat16 whatever the base runs in, and nothing they say changes the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from backends.medusa.heads import KINDS, Weights
from backends.medusa.model import Linear
from backends.medusa.tree import Tree

BLOCK = 128  # ids that are looked at together when the best guesses are sought


@dataclass(slots=True)
class Draft:
    """One row a request, one column a tree node; column 0 is the root. A node that was not drafted has score 0.
    `levels`: depths at which heads ran."""

    tokens: list[list[int]]
    scores: list[list[float]] = field(default_factory=list)
    levels: int = 0


class Drafter:
    """Heads ready to run. `embedding` [V, D] is the base's; `ids` [size], ascending: the tokens the heads can say.

    Raises ValueError for a tree that these heads cannot fill.
    """

    def __init__(self, kind: str, weights: Weights, embedding: Tensor, ids: Tensor, tree: Tree) -> None:
        weights = {name: weight.to(embedding.device, torch.bfloat16) for name, weight in weights.items()}
        self.heads, self.tree = KINDS[kind](weights, Linear), tree
        self._embedding = embedding.bfloat16()
        self._ids = ids.to(embedding.device)
        self._output = Linear(self._embedding[self._ids])
        self._widest = [1 + max(rank for children in level.values() for _, rank in children) for level in tree.levels]
        if len(tree.levels) > self.heads.depth:
            raise ValueError(f"the tree is {len(tree.levels)} deep, and there are {self.heads.depth} heads")
        if max(self._widest, default=0) > len(ids):
            raise ValueError(f"the tree asks for more guesses than the {len(ids)} tokens that the heads can say")

    @torch.no_grad()
    def draft(self, states: Tensor, roots: Sequence[int], floor: float = 0.0, worth: float = 0.0) -> Draft:
        """states [R, S, D], the base's where it predicted the roots. A node whose probability is not above `floor` is
        not drafted further: what follows it would be less probable still. It ends where the nodes to continue have
        together, over all rows, less probability than `worth`."""
        size = len(self.tree)
        draft = Draft([[root, *[0] * (size - 1)] for root in roots], [[1.0, *[0.0] * (size - 1)] for _ in roots])
        states = states.bfloat16()
        before = states[:, 0]  # [n, D]: the state that predicted each pair's token; at first it is not looked at
        came: dict[tuple[int, int], int] = {}  # a pair (row, node) -> its place in the level before
        for depth, level in enumerate(self.tree.levels):
            pairs = [(row, node) for row in range(len(roots)) for node in level if draft.scores[row][node] > floor]
            if not pairs or sum(draft.scores[row][node] for row, node in pairs) < worth:
                break
            draft.levels += 1
            token = self._on([draft.tokens[row][node] for row, node in pairs])
            embedded = F.embedding(token, self._embedding)  # [n, D]
            seen = states[self._on([row for row, _ in pairs])]  # [n, S, D]
            if depth == 0:
                before = self.heads.first(seen, embedded)
            else:
                origin = self._on([came[row, self.tree.parents[node]] for row, node in pairs])
                before = self.heads.next(depth, before[origin], seen, embedded)
            self._enter(draft, level, pairs, *self._best(before, self._widest[depth]))
            came = {pair: place for place, pair in enumerate(pairs)}
        return draft

    def _on(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, device=self._embedding.device)

    def _best(self, states: Tensor, count: int) -> tuple[list[list[int]], list[list[float]]]:
        """The `count` likeliest tokens of each state [n, D], and their probabilities among those the heads can say."""
        logits = self._output(states).float()  # [n, size]
        values, places = best(logits, count)
        chance = (values - logits.logsumexp(-1, True)).exp()
        found: list[list[int]] = self._ids[places].tolist()
        return found, chance.tolist()

    @staticmethod
    def _enter(
        draft: Draft,
        level: Mapping[int, Sequence[tuple[int, int]]],
        pairs: Sequence[tuple[int, int]],
        guessed: Sequence[Sequence[int]],
        chance: Sequence[Sequence[float]],
    ) -> None:
        """Writes down what was guessed after each pair."""
        for (row, node), said, sure in zip(pairs, guessed, chance, strict=True):
            tokens, scores = draft.tokens[row], draft.scores[row]
            for child, rank in level[node]:
                tokens[child], scores[child] = said[rank], scores[node] * sure[rank]


def best(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row [n, size], descending, and where they are: as topk, quicker for long rows.

    The largest `count` numbers lie in the `count` blocks with the largest maxima, so only those are sorted.
    """
    rows, size = logits.shape
    if size % BLOCK or size // BLOCK <= count:
        values, places = logits.topk(count, -1)
        return values, places
    blocks = logits.view(rows, -1, BLOCK)
    likely = blocks.amax(-1).topk(count, -1).indices  # [n, count]
    values, inner = blocks.gather(1, likely[..., None].expand(-1, -1, BLOCK)).flatten(1).topk(count, -1)
    places = likely.gather(1, inner // BLOCK) * BLOCK + inner % BLOCK
    return values, places
