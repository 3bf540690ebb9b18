"""What a row would try next, from all sources, as one tree: equal guesses come once, siblings differ."""

from collections.abc import Sequence
from dataclasses import dataclass, field

HEADS, LOOKUP = 0, 1


@dataclass(slots=True)
class Candidates:
    """Node 0 is the root, which is known to be right. `scores`: the probability that the text goes through the node;
    never more than its parent's. Parents come before children."""

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    depths: list[int] = field(default_factory=lambda: [0])
    scores: list[float] = field(default_factory=lambda: [1.0])
    sources: list[int] = field(default_factory=lambda: [HEADS])
    children: list[dict[int, int]] = field(default_factory=lambda: [{}])

    @classmethod
    def after(cls, root: int) -> "Candidates":
        return cls([root])

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int, score: float, source: int) -> int:
        """The node of this token after this parent; the higher score and its source stay if it is here already."""
        score = min(score, self.scores[parent])
        node = self.children[parent].get(token)
        if node is None:
            node = len(self.tokens)
            self.children[parent][token] = node
            self.tokens.append(token)
            self.parents.append(parent)
            self.depths.append(self.depths[parent] + 1)
            self.scores.append(score)
            self.sources.append(source)
            self.children.append({})
        elif score > self.scores[node]:
            self.scores[node], self.sources[node] = score, source
        return node

    def add_tree(self, parents: Sequence[int], tokens: Sequence[int], scores: Sequence[float]) -> None:
        """The heads' tree, root first. A node of score 0 was not drafted, and one of NaN says nothing: they stay out,
        with all behind them."""
        place = {0: 0}
        for index in range(1, len(parents)):
            if scores[index] > 0 and parents[index] in place:
                place[index] = self.add(place[parents[index]], tokens[index], scores[index], HEADS)

    def add_chain(self, tokens: Sequence[int], first: float, further: float) -> None:
        """A chain behind the root: its first token is right with probability `first`, each next one with `further`."""
        node, score = 0, first
        for token in tokens:
            node = self.add(node, token, score, LOOKUP)
            score *= further

    def subtree(self, kept: Sequence[int]) -> "Candidates":
        """Only these nodes, the root among them and every node's parent too, ascending."""
        place = {node: index for index, node in enumerate(kept)}
        found = Candidates.after(self.tokens[0])
        for node in kept[1:]:
            found.add(place[self.parents[node]], self.tokens[node], self.scores[node], self.sources[node])
        return found
