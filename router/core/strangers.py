"""What a gateway learns of the others that send to the same workers and do not share what they know.

All of them run the same rule over the same ring, so they are where this one would be. A prompt that this one never
sent, another may have sent, most likely to its home: `trust` is the share of it that its home would hold if all sent
such prompts home. What was found there is divided by how often this one does so itself, as the others do it no more
often. Taken undivided, the trust would sink because it is low: whoever goes home seldom finds little there.

A request found waiting is longer than the mean of all, since the longest are found the most often. What a stranger's
waiting request amounts to is therefore taken from our own at the same looks.
"""

from __future__ import annotations

from typing import Final

FIRST_TRUST: Final = 0.3
LEAST_FOUND: Final = 0.01
STEP: Final = 0.02  # how quickly a mean over requests follows
LEAST_HOMEWARD: Final = 0.1
LOOK_STEP: Final = 0.0005  # the same over looks at one worker's queue, of which there are many a second
FIRST_WORK: Final = 1000.0


class Strangers:
    """trust: the learnt share of what the home of a prompt is not known to hold that it holds all the same"""

    __slots__ = ("_found", "_homeward", "_tokens", "_waiting", "trust")

    def __init__(self) -> None:
        self.trust = self._found = FIRST_TRUST
        self._homeward = 1.0
        self._tokens = self._waiting = 0.0

    def sent(self, *, home: bool) -> None:
        """A prompt that nobody was known to hold was sent home, or elsewhere."""
        self._homeward += STEP * (home - self._homeward)

    def found(self, share: float) -> None:
        """One that was sent home found that share of what the home was not known to hold."""
        self._found += STEP * (min(max(share, LEAST_FOUND), 1.0) - self._found)
        self.trust = min(self._found / max(self._homeward, LEAST_HOMEWARD), 1.0)

    def looked(self, waiting: int, charged: float) -> float:
        """At a look at a worker's queue so many of our own requests and tokens waited there; the mean of one."""
        self._waiting += LOOK_STEP * (waiting - self._waiting)
        self._tokens += LOOK_STEP * (charged - self._tokens)
        return self._tokens / self._waiting if self._waiting else FIRST_WORK
