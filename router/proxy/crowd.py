"""How many clients at a time: each may need a descriptor of its own and one to its worker.

Where the system allows few, clients beyond half of them wait to be taken, in the order they came, instead of taking the
descriptors that the answers to the others need. A connection that is kept and idle makes room for one that waits.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Collection
from typing import Any

OWN = 40  # descriptors for listeners, probes, logs, the loop itself; about half of them are in use
BESIDE = 8  # connections beyond those that worker connections are for: looks at health and metrics need no second one
PLENTY = 16_384  # with so many nobody counts
MOST = 1_048_576
LOOK_SECONDS = 0.01


def raise_limit() -> int:
    """Take as many descriptors as this process may have without asking anybody; how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MOST if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS has a lower limit of its own
        return soft
    return wanted


class Crowd:
    """`connections` are uvicorn's; `most`: how many may be there, None where descriptors are plenty."""

    def __init__(self, connections: Collection[Any], descriptors: int) -> None:
        self._connections = connections
        self.most = None if descriptors >= PLENTY else max(1, (descriptors - OWN) // 2) + BESIDE

    async def place(self, coming: Collection[Any] = ()) -> None:
        """Wait until one more may come in, beside those that are `coming` in now."""
        while self.most is not None and len(self._connections) + len(coming) >= self.most:
            self._make_room()
            await asyncio.sleep(LOOK_SECONDS)

    def _make_room(self) -> None:
        """Close one that is kept and idle, if any is."""
        for connection in list(self._connections):
            cycle = connection.cycle
            if cycle is not None and cycle.response_complete and not getattr(connection, "in_message", False):
                connection.transport.close()
                return
