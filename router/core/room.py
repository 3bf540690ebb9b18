"""How many tokens a worker's prefix cache has room for: told by its engine, or learnt.

What is learnt: a request was sent where its prefix had last been sent `age` tokens ago, and the worker said how much of
it was still cached. Found gone: the room is smaller than thought. Found there beyond the room: it is larger. A worker
that reports and never delivers anything caches nothing.
"""

from __future__ import annotations

from math import inf
from typing import Final

OWN_SHARE: Final = 0.85  # of a told room: answers, running requests and blocks that are not full take the rest
SHRINK: Final = 0.9
GROW: Final = 1.05
TOO_YOUNG: Final = 1 / 16  # of the room: a prefix sent that short ago may be missing because it is still being computed
GONE: Final = 0.5  # shares of the expected tokens
THERE: Final = 0.8
LEAST_EXPECTED: Final = 64  # tokens; fewer say little
BARREN: Final = 24  # deliveries of nothing in a row after which a worker is held to cache nothing


class Room:
    """One worker's room in tokens; unknown room is infinite."""

    __slots__ = ("_barren", "_told", "tokens")

    def __init__(self) -> None:
        self.tokens = inf
        self._told = False
        self._barren = 0

    def __repr__(self) -> str:
        return f"<Room {self.tokens:.0f}{', caches nothing' if self.is_barren else ''}>"

    @property
    def is_barren(self) -> bool:
        return self._barren >= BARREN

    def tell(self, tokens: float) -> None:
        """The engine says so; nothing is learnt any more."""
        self.tokens = OWN_SHARE * tokens
        self._told = True

    def learn(self, age: float, expected: float, delivered: float, computed: float) -> None:
        """`expected` tokens of a prefix were to be there, last sent `age` tokens ago, and `delivered` were.

        computed: tokens computed on this worker in all, which bounds a room that was never met before.
        """
        if delivered > 0:
            self._barren = 0
        elif expected >= LEAST_EXPECTED:
            self._barren += 1
        if self._told:
            return
        if age > self.tokens and delivered >= max(LEAST_EXPECTED, expected / THERE):
            self.tokens = age
        elif expected < LEAST_EXPECTED:
            return
        elif delivered < GONE * expected:
            known = min(self.tokens, computed)
            if age >= TOO_YOUNG * known:
                self.tokens = max(SHRINK * known, 1.0)
        elif delivered >= THERE * expected and age > self.tokens / 2:
            self.tokens *= GROW
