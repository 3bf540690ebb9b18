"""What a step costs: measured at start, corrected while it runs.

The linear layers' part depends on the number of tokens alone and is a measured curve: flat as long as reading the
weights takes longer than multiplying by them, then rising. Attention's part grows with tokens times context. What the
model gets wrong at some number of rows and tokens (a machine shared with others, a long context) is learned as a factor
from the steps themselves.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

LEARNING = 0.1  # weight of a new measurement
OUTLIER = 2.0  # a step that took more than so many times what was expected was interrupted, and counts as so many


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds over tokens: straight between the points and beyond the last one, level before the first. More tokens are
    never quicker: what was measured below a point before it is raised to that. Raises ValueError for points that are no
    such measurement."""

    tokens: Sequence[int]
    seconds: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.tokens) < 2 or list(self.tokens) != sorted(set(self.tokens)):
            raise ValueError("a curve needs at least two points, in ascending order")
        if len(self.seconds) != len(self.tokens) or not min(self.seconds) > 0:
            raise ValueError("a curve needs a time above 0 for each of its points")
        object.__setattr__(self, "seconds", tuple(accumulate(self.seconds, max)))

    def at(self, tokens: int) -> float:
        right = min(max(1, bisect_right(self.tokens, tokens)), len(self.tokens) - 1)
        (x0, x1), (y0, y1) = self.tokens[right - 1 : right + 1], self.seconds[right - 1 : right + 1]
        return max(self.seconds[0], y0 + (y1 - y0) * (tokens - x0) / (x1 - x0))


@dataclass(slots=True)
class Costs:
    """`per_row`: seconds a row adds to a pass for itself; `per_seen`: seconds of attention for one token that sees one
    other."""

    curve: Curve
    per_row: float = 0.0
    per_seen: float = 0.0
    _factors: dict[tuple[int, int], float] = field(default_factory=dict)

    def step(self, rows: int, tokens: int, context: float) -> float:
        """Seconds of a step with so many rows and tokens over all; `context`: tokens that one of them sees, a mean."""
        return self._model(rows, tokens, context) * self._factor(rows, tokens)

    def learn(self, rows: int, tokens: int, context: float, seconds: float) -> float:
        """A step of this size took so many seconds. Returns the seconds that are believed: an interruption's share of
        them is left out."""
        model, factor = self._model(rows, tokens, context), self._factor(rows, tokens)
        believed = min(seconds, OUTLIER * factor * model)
        if believed > 0:
            self._factors[bucket(rows, tokens)] = factor + LEARNING * (believed / model - factor)
        return believed

    def _model(self, rows: int, tokens: int, context: float) -> float:
        return self.curve.at(tokens) + self.per_row * rows + self.per_seen * tokens * context

    def _factor(self, rows: int, tokens: int) -> float:
        """This bucket's own, or that of the nearest number of tokens at this number of rows."""
        own = bucket(rows, tokens)
        found = self._factors.get(own)
        if found is None:
            near = [(abs(own[1] - size), factor) for (row, size), factor in self._factors.items() if row == own[0]]
            found = min(near, default=(0, 1.0))[1]
        return found


def bucket(rows: int, tokens: int) -> tuple[int, int]:
    """Powers of two: steps in one bucket are corrected together."""
    return (rows - 1).bit_length(), (tokens - 1).bit_length()
