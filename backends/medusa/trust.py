"""How far to believe a source's probabilities: learned from what was verified.

Heads are as sure of themselves as their training text made them; a lookup has no probability of its own at all. Of
every verified node whose parent was accepted one sees whether it was right, and only of those.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.medusa.candidates import LOOKUP, Candidates

LEARNING = 0.02
LOOKUP_FIRST = {2: 0.45, 3: 0.7}  # a lookup's first token is right with this probability, by tokens that agreed
LOOKUP_FURTHER = 0.85  # and each next one with this, given that the one before was


@dataclass(slots=True)
class Trust:
    """`first`, `further`: a lookup's probabilities; `factors`: by depth from 1, what a head's probability of a token
    after the right ones before it is to be multiplied with."""

    first: dict[int, float] = field(default_factory=lambda: dict(LOOKUP_FIRST))
    further: float = LOOKUP_FURTHER
    factors: dict[int, float] = field(default_factory=dict)

    def scored(self, scores: Sequence[float], depths: Sequence[int]) -> list[float]:
        """A draft's path probabilities, root first, as far as they are to be believed. What is no number stays none."""
        product = [1.0]
        for depth in range(1, 1 + max(depths)):
            product.append(product[-1] * self.factors.get(depth, 1.0))
        return [min(score * product[depth], 1.0) for score, depth in zip(scores, depths, strict=True)]

    def learn(self, tried: Candidates, path: Sequence[int], agreed: int) -> None:
        """`path`: the accepted nodes, root first; `agreed`: tokens that the row's lookup rested on, 0 for none."""
        accepted = set(path)
        for node in range(1, len(tried)):
            parent = tried.parents[node]
            if parent not in accepted:
                continue
            right = float(node in accepted)
            if tried.sources[node] != LOOKUP:
                promised = tried.scores[node] / max(tried.scores[parent], 1e-9)
                depth = tried.depths[node]
                factor = self.factors.get(depth, 1.0) * (1 + LEARNING * (right - promised))
                self.factors[depth] = min(2.0, max(0.2, factor))
            elif parent == 0 and agreed:
                self.first[agreed] += LEARNING * (right - self.first[agreed])
            else:
                self.further += LEARNING * (right - self.further)
