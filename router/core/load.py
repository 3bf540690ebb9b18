"""The ledger: what each worker has been charged with and not yet been relieved of.

A request charges the prefill tokens it is expected to need until its first token, and one unit of in-flight until its
end. Both go back exactly once, through its lease, whatever happened in between. Nothing else ever changes these
numbers: no probe, no poll and no clock resets them.

A worker's pace (prefill tokens a second) is learnt from requests that found it with nothing waiting. A worker whose
oldest waiting request is overdue by that pace is held to be as far behind as it is late: that shows queues which no
count of tokens shows, such as a full batch.
"""

from __future__ import annotations

HALF_LIFE = 41.6  # seconds; halving in whole steps has the mean age of a decay with a time constant of 60 s
PACE_TOKENS = 64  # a request that computes fewer says little about the pace
PACE_UP, PACE_DOWN = 0.5, 0.05  # quick to believe in a fast worker, slow to forget it: a high percentile
GRACE = 0.25  # seconds of lateness that mean nothing


class Load:
    """One worker's load, seen from this process.

    in_flight: requests chosen for it and not over
    charged: prefill tokens chosen for it whose first token has not come
    traffic: prompt tokens sent to it recently, halved every `HALF_LIFE`
    """

    __slots__ = ("_due", "charged", "in_flight", "pace", "traffic")

    def __init__(self) -> None:
        self.in_flight = 0
        self.charged = 0.0
        self.traffic = 0.0
        self.pace: float | None = None
        self._due: dict[Lease, float] = {}

    def __repr__(self) -> str:
        return f"<Load {self.in_flight} in flight, {self.charged:.0f} tokens waiting>"

    def wait(self, now: float) -> float:
        """Tokens that a new request would have to wait for."""
        if self.pace is not None and self._due:
            late = now - next(iter(self._due.values())) - GRACE
            if late > 0:
                return max(self.charged, late * self.pace)
        return self.charged

    def charge(self, tokens: float, now: float, *, streaming: bool) -> Lease:
        """Take one unit of this worker's attention."""
        lease = Lease(self, tokens, now, alone=self.charged <= 0.0)
        self.in_flight += 1
        self.charged += tokens
        if streaming and self.pace is not None:
            self._due[lease] = now + self.charged / self.pace
        return lease

    def relieve(self, lease: Lease) -> None:
        self._due.pop(lease, None)
        self.charged -= lease.tokens
        if not self._idle_of_charges():
            return
        self.charged = 0.0  # sums of floats drift; an idle worker has exactly nothing waiting

    def learn_pace(self, tokens: float, seconds: float) -> None:
        """A request that had the worker's prefill to itself took that long for that many tokens."""
        if tokens < PACE_TOKENS or seconds <= 0.0:
            return
        seen = tokens / seconds
        if self.pace is None:
            self.pace = seen
        else:
            self.pace += (PACE_UP if seen > self.pace else PACE_DOWN) * (seen - self.pace)

    def _idle_of_charges(self) -> bool:
        return self.charged < 1e-6 or self.in_flight == 0


class Lease:
    """One unit of one worker's attention, held by one owner at a time. Every method may be called again."""

    __slots__ = ("_alone", "_charged", "_load", "_open", "_since", "tokens")

    def __init__(self, load: Load, tokens: float, now: float, *, alone: bool) -> None:
        self.tokens = tokens
        self._load = load
        self._since = now
        self._alone = alone
        self._charged = self._open = True

    def first_token(self, now: float) -> None:
        """Prefill is over: the charged tokens go back, and the pace is learnt."""
        if self._charged:
            self._charged = False
            if self._alone:
                self._load.learn_pace(self.tokens, now - self._since)
            self._load.relieve(self)

    def release(self) -> bool:
        """All that is still held goes back. True the first time."""
        if not self._open:
            return False
        self._open = False
        self._load.in_flight -= 1
        if self._charged:
            self._charged = False
            self._load.relieve(self)
        return True


class Traffic:
    """When every worker's `traffic` is to be halved: together, in whole steps of `HALF_LIFE`.

    Whole steps, so that two processes that saw the same requests agree, whatever the moments between them.
    """

    __slots__ = ("_begin", "next_at")

    def __init__(self) -> None:
        self._begin: float | None = None
        self.next_at = 0.0

    def halvings(self, now: float) -> int:
        """How many halvings are due since the last call that said so; none are before `next_at`."""
        if self._begin is None:
            self._begin = now
        steps = int((now - self._begin) / HALF_LIFE)
        self._begin += steps * HALF_LIFE
        self.next_at = self._begin + HALF_LIFE
        return steps
