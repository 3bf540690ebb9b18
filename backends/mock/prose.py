"""What a mock model says: an endless text, a pure function of seed and prompt.

Every piece is four ASCII characters without a newline, exactly what the tokenizer cuts, so an answer sent back in the
next turn has the ids it was made of. After plain text an answer opens a new line: then prompt plus answer, sent as
one text, is cut the same way too.

As a model would, it goes on with words of its own: a prompt that ends with the beginning of what would have been said
to the rest of it is answered with what comes next.
"""

import math
from array import array
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from backends.contract import TokenLogprob
from backends.mock.tokenizer import MARKERS, cut

PIECES = (
    *("the ", "and ", "her ", "his ", "one ", "sea ", "sun ", "old ", "new ", "far ", "sky ", "red ", "low ", "ice "),
    *("rain", "wind", "tide", "lake", "moon", "star", "leaf", "bark", "root", "moss", "fern", "reed", "song", "path"),
    *(" of ", " in ", " to ", " on ", " by ", " at ", " as ", " we ", " or ", " so ", " if ", " up "),
    *("ing ", "ers ", "ed, ", "es. ", "ly, ", "al. ", "ion ", "ous ", "ful ", "est ", "ity ", "ess "),
    *("warm", "cold", "slow", "soft", "deep", "tall", "pale", "calm", "blue", "gold", "dark", "wild"),
)
IDS = tuple(cut(piece)[0] for piece in PIECES)
WORDS = frozenset(IDS)
NEWLINE = cut("\n")[0]
MULTIPLIER, INCREMENT, MASK = 6364136223846793005, 1442695040888963407, 2**64 - 1
"""Knuth's MMIX generator: one multiplication a token; the top bits choose the piece."""


class Prose:
    """`spoken`: tokens of this answer that stand at the end of the prompt already."""

    def __init__(self, seed: int, prompt: Sequence[int]) -> None:
        self.spoken = 0
        for begin in _beginnings(prompt):
            said = list(prompt[begin:])
            self._begin(seed, prompt[:begin])
            head = said[:2]  # nearly always tells
            if head == self.take(len(head))[0] and said == head + self.take(len(said) - len(head))[0]:
                self.spoken = len(said)
                return
        self._begin(seed, prompt)

    def _begin(self, seed: int, prompt: Sequence[int]) -> None:
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


def logprob_of(token: int, wanted: int) -> TokenLogprob:
    """The truth about how `take` chose this token: a new line is certain, and any piece is as likely as another."""
    chances = ((NEWLINE, 0.0),) if token == NEWLINE else [(piece, -math.log(len(IDS))) for piece in IDS[:wanted]]
    return TokenLogprob(token, 0.0 if token == NEWLINE else -math.log(len(IDS)), chances[:wanted])


def _beginnings(prompt: Sequence[int]) -> list[int]:
    """Where an answer that the prompt ends with may begin: no piece holds a new line or a marker."""
    if not prompt or (prompt[-1] not in WORDS and prompt[-1] != NEWLINE):
        return []
    at = len(prompt)
    while at and prompt[at - 1] in WORDS:
        at -= 1
    found = [at] if 0 < at < len(prompt) else []
    if at > 1 and prompt[at - 1] == NEWLINE:
        found.append(at - 1)
    return found
