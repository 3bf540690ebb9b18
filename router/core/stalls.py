"""Silence: whether a worker that has requests waiting says nothing at all any more.

One object a worker, told now and then how often something came from it and since when a request waits there. What is
silent is no stall by itself: a long prompt on a slow worker, or an answer that comes in one piece when all is
generated. So a worker has at least

    seconds                      for a stream's first token
    PLAIN times that             where no stream waits: such answers come late
    UNKNOWN times that           while its pace is unknown: nobody knows what to expect
    LONGER times its own record  the longest silence of late that ended well
    PATIENCE times its pace      what its learnt pace promises for the request that waits longest
"""

from __future__ import annotations

from router.core.load import PATIENCE, Load

PLAIN, UNKNOWN, LONGER = 4.0, 4.0, 3.0
HALF_LIFE = 600.0  # seconds, of the record: a worker that was slow once need not be so for ever


class Silence:
    """`seconds`: how long it has said nothing while a request waited; 0.0 where none does."""

    __slots__ = ("_heard_at", "_looked_at", "_reads", "record", "seconds")

    def __init__(self, now: float) -> None:
        self.seconds = self.record = 0.0
        self._reads = 0
        self._heard_at = self._looked_at = now

    def __repr__(self) -> str:
        return f"<Silence of {self.seconds:.1f} s, at most {self.record:.1f} of late>"

    def look(self, reads: int, since: float | None, now: float) -> float:
        """So many reads so far, and the oldest request has been waiting since then. Tells `seconds`."""
        self.record *= 0.5 ** ((now - self._looked_at) / HALF_LIFE)
        self._looked_at = now
        if reads != self._reads:
            self.record = max(self.record, self.seconds)
            self._reads, self._heard_at = reads, now
        self.seconds = 0.0 if since is None else max(0.0, now - max(self._heard_at, since))
        return self.seconds

    def excuse(self, seconds: float) -> None:
        """For so long nobody could have listened: this process itself stood still."""
        self._heard_at += seconds
        self._looked_at += seconds

    def allowed(self, least: float, load: Load, oldest: float, *, streaming: bool, now: float) -> float:
        """How long it may be silent. `oldest`: the tokens of the request that waits longest; `streaming`: some stream
        waits for its first token."""
        allowed = least if streaming else PLAIN * least
        if load.pace is None:
            allowed = max(allowed, UNKNOWN * least)
        else:
            allowed = max(allowed, PATIENCE * (oldest + _strangers(load, now)) / load.pace)
        return max(allowed, LONGER * self.record)


def _strangers(load: Load, now: float) -> float:
    """Tokens that others than this process wait for there."""
    tokens = load.charged_elsewhere + sum(charged for _, charged, until in load.remote.values() if now < until)
    return tokens + (load.queued if now < load.queue_until else 0.0)
