"""What a mock model says: an endless text, a pure function of seed and prompt.

Every piece is four ASCII characters without a newline, exactly what the tokenizer cuts, so an answer sent back in the
next turn has the ids it was made of. After plain text an answer opens a new line: then prompt plus answer, sent as
one text, is cut the same way too.
"""

from array import array
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from backends.mock.tokenizer import MARKERS, cut

PIECES = (
    *("the ", "and ", "her ", "his ", "one ", "sea ", "sun ", "old ", "new ", "far ", "sky ", "red ", "low ", "ice "),
    *("rain", "wind", "tide", "lake", "moon", "star", "leaf", "bark", "root", "moss", "fern", "reed", "song", "path"),
    *(" of ", " in ", " to ", " on ", " by ", " at ", " as ", " we ", " or ", " so ", " if ", " up "),
    *("ing ", "ers ", "ed, ", "es. ", "ly, ", "al. ", "ion ", "ous ", "ful ", "est ", "ity ", "ess "),
    *("warm", "cold", "slow", "soft", "deep", "tall", "pale", "calm", "blue", "gold", "dark", "wild"),
)
IDS = tuple(cut(piece)[0] for piece in PIECES)
NEWLINE = cut("\n")[0]
MULTIPLIER, INCREMENT, MASK = 6364136223846793005, 1442695040888963407, 2**64 - 1
"""Knuth's MMIX generator: one multiplication a token; the top bits choose the piece."""


class Prose:
    def __init__(self, seed: int, prompt: Sequence[int]) -> None:
        self._state = xxh3_64_intdigest(array("Q", prompt).tobytes(), seed)
        last = prompt[-1] if prompt else NEWLINE
        self._open_line = last != NEWLINE and last not in MARKERS.values()

    def take(self, count: int) -> tuple[list[int], list[str]]:
        """The next tokens, as ids and as texts."""
        ids: list[int] = []
        texts: list[str] = []
        if self._open_line and count:
            self._open_line = False
            count -= 1
            ids.append(NEWLINE)
            texts.append("\n")
        for _ in range(count):
            self._state = (self._state * MULTIPLIER + INCREMENT) & MASK
            choice = (self._state >> 32) % len(PIECES)
            ids.append(IDS[choice])
            texts.append(PIECES[choice])
        return ids, texts
