"""What peers do wrong, in the log: a line now and then, so that no peer can fill it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

log = logging.getLogger("router")

EVERY = 10.0  # seconds between two lines of a kind


class Complaints:
    """One for all peers. `clock` says seconds. Faults of our own, with their traceback, are a kind of their own."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next = {False: -inf, True: -inf}
        self._unsaid = {False: 0, True: 0}

    def say(self, what: str, *, fault: bool = False) -> None:
        """`what` in a few words, none of them the peer's; `fault`: called where an exception of ours is handled."""
        now = self._clock()
        if now < self._next[fault]:
            self._unsaid[fault] += 1
            return
        self._next[fault] = now + EVERY
        unsaid, self._unsaid[fault] = self._unsaid[fault], 0
        log.log(
            logging.ERROR if fault else logging.WARNING,
            "%s%s", what, f" ({unsaid} more like it were not told)" if unsaid else "", exc_info=fault,
        )  # fmt: skip
