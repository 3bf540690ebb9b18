"""What drafting gained, counted: for metrics and for the bench."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, fields

from backends.medusa.candidates import LOOKUP, Candidates


def sums() -> defaultdict[int, float]:
    return defaultdict(float)


@dataclass(slots=True)
class Tally:
    """Counts since the start. By rows in the step: `row_steps`, `steps` and those with a draft, `drafts`; nodes that
    were verified and tokens that they yielded; `seconds` of steps, drafts apart, and `draft_seconds`. By (source,
    depth): nodes `tried` after right ones, and those that were `right`. `guessed`: row-steps that tried a guess at all;
    `guesses`: how many they tried."""

    row_steps: Counter[int] = field(default_factory=Counter)
    nodes: Counter[int] = field(default_factory=Counter)
    tokens: Counter[int] = field(default_factory=Counter)
    steps: Counter[int] = field(default_factory=Counter)
    seconds: defaultdict[int, float] = field(default_factory=sums)
    drafts: Counter[int] = field(default_factory=Counter)
    draft_seconds: defaultdict[int, float] = field(default_factory=sums)
    tried: Counter[tuple[str, int]] = field(default_factory=Counter)
    right: Counter[tuple[str, int]] = field(default_factory=Counter)
    guessed: int = 0
    guesses: int = 0

    def copy(self) -> "Tally":
        """Counts that stay as they are now."""
        return Tally(*(copy(getattr(self, one.name)) for one in fields(self)))

    def accepted(self, rows: int, tried: Candidates, path: Sequence[int]) -> None:
        """One row's part of a step with so many rows: the nodes it verified and those of them that were right."""
        self.row_steps[rows] += 1
        self.guessed += len(tried) > 1
        self.guesses += len(tried) - 1
        on_path = set(path)
        for node in range(1, len(tried)):
            if tried.parents[node] in on_path:
                key = ("lookup" if tried.sources[node] == LOOKUP else "heads", tried.depths[node])
                self.tried[key] += 1
                self.right[key] += node in on_path

    def step(self, rows: int, nodes: int, tokens: int, drafted: float, seconds: float) -> None:
        """A whole step without parts of prompts. `drafted`: seconds of its draft, 0 for none."""
        self.steps[rows] += 1
        self.nodes[rows] += nodes
        self.tokens[rows] += tokens
        self.seconds[rows] += seconds
        if drafted:
            self.drafts[rows] += 1
            self.draft_seconds[rows] += drafted
