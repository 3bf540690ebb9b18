"""Descriptors kept back for connections to workers.

Clients connect in bursts and are all taken before the first of them is served. Where they could take every descriptor
none would be left to serve any of them with; so the other half is held here, and given out one by one when the system
says that none is free. What is given out is taken back when there are free ones again.
"""

from __future__ import annotations

import errno
import os
import resource

OWN = 40  # descriptors of a process by itself
MOST = 4096  # held back at most
ENOUGH = 65_536  # to raise the soft limit to, where the hard one allows
NONE_FREE = frozenset((errno.EMFILE, errno.ENFILE))


class Reserve:
    """Empty until it is filled, which a process that serves does once."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self._wanted = 0

    def __len__(self) -> int:
        return len(self._held)

    def fill(self, limit: int) -> None:
        """Hold back half of what a process may open that has this limit."""
        self._wanted = min(max(0, limit - OWN) // 2, MOST)
        self.refill()

    def refill(self) -> None:
        while len(self._held) < self._wanted:
            try:
                self._held.append(os.dup(self._held[-1]) if self._held else os.open(os.devnull, os.O_RDONLY))
            except OSError:
                return  # another time

    def give(self, wrong: OSError) -> bool:
        """After this failure: whether there is a free descriptor now, and trying again makes sense."""
        if wrong.errno not in NONE_FREE or not self._held:
            return False
        os.close(self._held.pop())
        return True

    def empty(self) -> None:
        self._wanted = 0
        while self._held:
            os.close(self._held.pop())


RESERVE = Reserve()  # a process has one set of descriptors


def raised_limit() -> int:
    """How many descriptors this process may open, after the soft limit was raised where that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return ENOUGH if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # macOS allows less than its hard limit says
        return soft
    return most
