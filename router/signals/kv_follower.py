"""One worker's KV-cache messages, taken in their order.

A message has three frames: topic, number (8 bytes, big endian, from 0), payload (`kv_wire.py`). An engine that starts
counts from 0, and then its cache is empty. A number that does not follow the last one means that something was missed:
the worker's view is lost and begun anew, incomplete until the engine starts again or says that it cleared its cache.
There is no way to ask for what was missed. Until then what it says to have stored and removed counts all the same.
"""

from __future__ import annotations

from collections import Counter

from router.core.blocks import Blocks
from router.signals.kv_wire import Cleared, Event, Stored, read

MOST_BYTES = 4 << 20  # a message; the blocks of 100,000 new tokens take half a megabyte
MOST_RANKS = 64


class Follower:
    """What one worker's messages say, taken in their order. `counts`: by kind, for the metrics."""

    def __init__(self, worker: str, blocks: Blocks) -> None:
        self.worker = worker
        self.counts: Counter[str] = Counter()
        self._blocks = blocks
        self._next: dict[int, int] = {}  # rank -> the number of its next message
        self._group: int | None = None  # of several kinds of cache the first that keeps every token

    def take(self, frames: list[bytes]) -> None:
        """One message. Takes any frames."""
        right = len(frames) == 3 and len(frames[1]) == 8 and len(frames[2]) <= MOST_BYTES
        batch = read(frames[2]) if right else None
        if batch is None:
            self.miss("malformed")
            return
        if not self._in_order(batch.rank, int.from_bytes(frames[1], "big")):
            return
        if batch.bad:
            self.miss("malformed")  # what it was is missed; what came with it counts
        for event in batch.events:
            self._apply(event)

    def _in_order(self, rank: int, number: int) -> bool:
        """False for a message that was here before."""
        expected = self._next.get(rank)
        if number == 0 and (expected is not None or not self._next):
            self._next = {}
            self._blocks.clear(self.worker)
        elif expected is None or number != expected:
            if expected is not None and number == expected - 1:
                return False
            if expected is not None:
                self.miss("gap")
            elif number:
                self._blocks.lose(self.worker)  # it began before we listened
        if len(self._next) < MOST_RANKS or rank in self._next:
            self._next[rank] = number + 1
        return True

    def miss(self, kind: str) -> None:
        """Something was not understood or did not come: what the worker holds is unknown."""
        self.counts[kind] += 1
        self._blocks.lose(self.worker)

    def _apply(self, event: Event) -> None:
        if isinstance(event, Cleared):
            self.counts["cleared"] += 1
            self._blocks.clear(self.worker)
            return
        if event.group is not None and event.group != self._group:
            if self._group is not None or not isinstance(event, Stored):
                return
            self._group = event.group
        if not isinstance(event, Stored):
            self.counts["removed"] += len(event.names)
            self._blocks.remove(self.worker, event.names)
        elif self._blocks.store(self.worker, event.names, event.parent, event.tokens, event.size, event.adapter):
            self.counts["stored"] += len(event.names)
        else:
            self.counts["unplaced"] += len(event.names)  # nothing is known of the block before them
