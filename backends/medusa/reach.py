"""How far a draft goes: each further level of heads has to be worth its time.

A level costs about the same whatever hangs on it, so it is worth running while enough hangs on it: the probabilities
with which the rows' texts go through the nodes it would continue, times the chance that a guess behind such a node is
right, against the tokens that decoding yields in the same time. Single nodes that would hardly be verified are not
continued either.
"""

from dataclasses import dataclass

from backends.medusa.drafting import Draft

SMALLEST_FLOOR, LARGEST_FLOOR = 0.02, 0.4
HOPE = 0.5  # that a further guess is right
LEARNING = 0.1


@dataclass(slots=True)
class Reach:
    """`floor`: a node with no more probability than this is not continued; `level_seconds`: what a level takes; `rate`:
    tokens a second."""

    floor: float = SMALLEST_FLOOR
    level_seconds: float = 0.0
    rate: float = 0.0

    @property
    def worth(self) -> float:
        """The sum of probabilities that a level has to continue, over all rows."""
        return self.level_seconds * self.rate / HOPE

    def learn(self, draft: Draft, seconds: float, rate: float, least: float) -> None:
        """A draft took `seconds`, and the step after it is expected to yield tokens at `rate`; `least`: the smallest
        probability of a node that was worth verifying."""
        self.floor = min(LARGEST_FLOOR, max(SMALLEST_FLOOR, least / 2))
        a_level = seconds / max(1, draft.levels)
        self.level_seconds += (LEARNING if self.level_seconds else 1.0) * (a_level - self.level_seconds)
        self.rate += (LEARNING if self.rate else 1.0) * (rate - self.rate)
