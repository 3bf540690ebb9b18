"""The channel between the processes of one machine: batches go over the process's line to the parent, which passes them
on to the others.

Why through the parent, and not from each to each: the line is there anyway and is made anew with a replaced process,
nothing has to be handed to those that live on, and N processes need N sockets and not N times N. The parent copies
bytes and reads nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from router.signals.line import Line

NEWS = "news"
MOST_PENDING = 1 << 20  # bytes that wait on a line; then batches are dropped: one that hangs costs no more than this


class Siblings:
    """Batches go out with `send`; those of the others are handed to `on_batch`.

    sent, received, dropped: batches
    """

    def __init__(self, line: Line, on_batch: Callable[[bytes], None]) -> None:
        self._line, self._on_batch = line, on_batch
        self._open = True
        self.sent = self.received = self.dropped = 0

    def send(self, batch: bytes) -> None:
        if pass_on(self._line, batch):
            self.sent += 1
        else:
            self.dropped += 1

    def receive(self, batch: bytes) -> None:
        """The line was told this by a sibling."""
        if self._open:
            self.received += 1
            self._on_batch(batch)

    async def close(self) -> None:
        """The line belongs to the process and stays open."""
        self._open = False


def pass_on(line: Line, batch: bytes) -> bool:
    """Tell it, unless too much waits there already."""
    if line.ended.is_set() or line.pending > MOST_PENDING:
        return False
    line.tell(NEWS, batch)
    return True
