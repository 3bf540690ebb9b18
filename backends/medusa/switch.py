"""Whether to draft at all: off where it does not pay, tried again now and then.

Kept apart for each power of two of the number of rows, since that is what decides: with many rows the forward pass has
no room left that is nearly free.
"""

from dataclasses import dataclass, field

LEAST_GAIN = 1.03  # tokens a second, against plain decoding
KEPT = 0.97  # of what is known, after each step: the last 30 or so decide
TRIAL, LEAST_STEPS = (
    32,
    4,
)  # rows' steps of drafting before it is judged, and steps: many rows show soon what one cannot
SHORTEST_REST, LONGEST_REST = 64, 1024  # steps of plain decoding before another trial; doubled by each that fails


@dataclass(slots=True)
class Judgement:
    """`plain`: seconds that plain decoding would have taken for what drafting yielded; `took`: what it took. Both are
    sums in which old steps fade, so that a long step weighs as much as its time."""

    plain: float = 0.0
    took: float = 0.0
    tried: int = 0
    resting: int = 0
    rest: int = SHORTEST_REST

    @property
    def gain(self) -> float:
        return self.plain / self.took if self.took else LEAST_GAIN


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
        judgement.plain = KEPT * judgement.plain + plain
        judgement.took = KEPT * judgement.took + took
        judgement.tried += 1
        if judgement.tried < trial(rows):
            return
        if judgement.gain >= LEAST_GAIN:
            judgement.rest = SHORTEST_REST
        else:
            rest = judgement.rest
            self._by_rows[bucket(rows)] = Judgement(resting=rest, rest=min(2 * rest, LONGEST_REST))

    def gain(self, rows: int) -> float:
        """Tokens a second as a multiple of plain decoding's; as if it just paid where nothing is known."""
        return self._of(rows).gain

    def _of(self, rows: int) -> Judgement:
        return self._by_rows.setdefault(bucket(rows), Judgement())


def trial(rows: int) -> int:
    """Steps of drafting, at this number of rows, before it is judged."""
    return max(LEAST_STEPS, -(-TRIAL // max(1, rows)))


def bucket(rows: int) -> int:
    """1, 2, 3 to 4, 5 to 8 rows, and so on."""
    return max(0, rows - 1).bit_length()
