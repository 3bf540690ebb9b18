"""Whether to draft at all: off where it does not pay, tried again now and then.

Kept apart for each power of two of the number of rows, since that is what decides: with many rows the forward pass has
no room left that is nearly free.
"""

from dataclasses import dataclass, field

LEAST_GAIN = 1.03  # tokens a second, against decoding without heads
KEPT = 0.97  # of what is known, after each step: the last 30 or so decide
TRIAL = 32  # rows' steps of drafting before it is judged: many rows show soon
LEAST_STEPS = 4  # but not at once
SHORTEST_REST, LONGEST_REST = 64, 1024  # steps of plain decoding before another trial; doubled by each that fails


@dataclass(slots=True)
class Judgement:
    """`plain`: seconds that decoding without heads would have taken for what drafting yielded; `took`: what it took.
    Both are sums in which old steps fade, so that a long step weighs as much as its time."""

    plain: float = 0.0
    took: float = 0.0
    tried: int = 0
    resting: int = 0
    rest: int = SHORTEST_REST
    gain: float = LEAST_GAIN  # as judged last

    def add(self, plain: float, took: float) -> None:
        self.plain, self.took = KEPT * self.plain + plain, KEPT * self.took + took
        self.tried += 1
        self.gain = self.plain / self.took if self.took else LEAST_GAIN


@dataclass(slots=True)
class Switch:
    _by_rows: dict[int, Judgement] = field(default_factory=dict)

    def on(self, rows: int) -> bool:
        """Whether the next step with so many rows should draft. Counts the steps that it should not."""
        judgement = self._of(rows)
        if judgement.resting:
            judgement.resting -= 1
            return False
        return True

    def learn(self, rows: int, plain: float, took: float) -> None:
        """Of a step that drafted: the seconds that its tokens would have taken without, and those that it took."""
        judgement = self._of(rows)
        judgement.add(plain, took)
        if judgement.tried < trial(rows):
            return
        if judgement.gain >= LEAST_GAIN:
            judgement.rest = SHORTEST_REST
        else:
            rest = judgement.rest
            rested = Judgement(resting=rest, rest=min(2 * rest, LONGEST_REST), gain=judgement.gain)
            self._by_rows[bucket(rows)] = rested

    def gain(self, rows: int) -> float:
        """Tokens a second as a multiple of those without heads, as judged last; as if it just paid where nothing is
        known."""
        return self._of(rows).gain

    def _of(self, rows: int) -> Judgement:
        return self._by_rows.setdefault(bucket(rows), Judgement())


def trial(rows: int) -> int:
    """Steps of drafting, at this number of rows, before it is judged."""
    return max(LEAST_STEPS, -(-TRIAL // max(1, rows)))


def bucket(rows: int) -> int:
    """1, 2, 3 to 4, 5 to 8 rows, and so on."""
    return max(0, rows - 1).bit_length()
