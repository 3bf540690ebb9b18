"""The ledger: what each worker has been charged with and not yet been relieved of.

A request charges the prefill tokens it is expected to need until its first token, and one unit of in-flight until its
end. Both go back exactly once, through its lease, whatever happened in between. Nothing else ever changes these
numbers: no probe, no poll and no clock resets them.

A worker's pace (prefill tokens a second) is learnt from streams that found it with nothing waiting. A worker that just
failed is not idle, however little waits there: a penalty stands for what it might cost to ask it again. A worker whose
oldest waiting request is overdue by that pace is held to be as far behind as it is late: that shows queues which no
count of tokens shows, such as a full batch.

Orders of the fleet by these numbers (`standing.py`) are put right when next asked for, so every change of one is told.
"""

from __future__ import annotations

from math import inf
from typing import Final, Protocol

from router.core.lease import Lease as Lease

LEAST_WORK: Final = 0.05  # of a prompt: reading it from the cache is not free
PACE_TOKENS: Final = 64  # a request that computes fewer says little about the pace
PACE_UP: Final = 0.5  # quick to believe in a fast worker, slow to forget it: a high percentile
PACE_DOWN: Final = 0.05
MOST_DONE: Final = 0.8  # of the request in prefill: by its pace it may be over, but it has not said so
PATIENCE: Final = 2.0  # times what its pace promises before a request is late: running decodes slow prefill down
GRACE: Final = 0.25  # seconds of lateness that mean nothing
SILENT: Final = 60.0  # seconds after which a replica that tells no more is forgotten
PENALTY_FACTOR: Final = 4.0  # a failure weighs as computing its prompt again does in the default policy
PENALTY_HALF_LIFE: Final = 1.0  # seconds


class Reader(Protocol):
    """Keeps what is known of several loads together."""

    traffic: float

    def pace_learnt(self, before: float | None, after: float) -> None: ...


class Load:
    """One worker's load, seen from this process.

    in_flight: requests chosen for it and not over
    charged: prefill tokens chosen for it whose first token has not come
    waiting: requests whose first token has not come
    traffic: prompt tokens sent to it recently, halved now and then (`fading.py`)
    elsewhere, waiting_elsewhere, charged_elsewhere: the same of the other processes of this machine
    apart: other gateways send here too, and do not say what
    remote: what other replicas said they have waiting and charged here, and until when that counts
    readers: who keeps sums over this and others; late: sets to which it is added when a floor or a count changes
    """

    __slots__ = ("_due", "_head_since", "_others", "_penalised_at", "_queue", "apart", "charged", "charged_elsewhere",
                 "elsewhere", "in_flight", "late", "pace", "paced", "penalty", "queue_until", "queued", "readers",
                 "remote", "traffic", "waiting", "waiting_elsewhere")  # fmt: skip

    def __init__(self) -> None:
        self.in_flight = 0
        self.charged = 0.0
        self.waiting = 0
        self.traffic = 0.0
        self.apart = False
        self.elsewhere = self.waiting_elsewhere = 0
        self.charged_elsewhere = 0.0
        self.remote: dict[str, tuple[int, float, float]] = {}
        self.queued = 0.0  # tokens that strangers wait for there, by the last look at its queue
        self.queue_until = -inf  # then that look is too old to mean anything
        self.pace: float | None = None
        self.paced = 0  # requests that it was learnt from
        self.penalty = self._penalised_at = 0.0
        self._queue: dict[Lease, None] = {}  # those without a first token, oldest first
        self._head_since = 0.0  # when the oldest one's prefill began
        self._due: dict[Lease, float] = {}
        self._others = False  # something may wait here that was not charged here
        self.readers: list[Reader] = []
        self.late: list[set[Load]] = []

    def __repr__(self) -> str:
        return f"<Load {self.in_flight} in flight, {self.charged:.0f} tokens waiting>"

    def wait(self, now: float) -> float:
        """Tokens that a new request would have to wait for."""
        others = self._others
        if not self._queue and not others:
            return 0.0
        wait = self.left(now)
        if others:
            wait += self.charged_elsewhere
            if now < self.queue_until:
                wait += self.queued
            for _, charged, until in self.remote.values():
                if now < until:
                    wait += charged
        if self._due and self.pace is not None:
            late = now - next(iter(self._due.values())) - GRACE
            if late > 0:
                wait = max(wait, late * self.pace)
        if others and self.penalty:
            left = self.penalty * 0.5 ** ((now - self._penalised_at) / PENALTY_HALF_LIFE)
            if left < 1.0:
                self.penalty = 0.0
            else:
                wait += left
        return wait

    def left(self, now: float) -> float:
        """Of the tokens charged here, those that by the worker's pace are still to be computed."""
        if self.pace is None or not self._queue or self.apart:
            return self.charged  # apart, nobody knows whose turn it is
        done = (now - self._head_since) * self.pace
        if done <= 0.0:
            return self.charged
        most = MOST_DONE * next(iter(self._queue)).tokens
        return self.charged - (done if done < most else most)

    def floor(self) -> float:
        """No less than this will `wait` say, at any time until the readers are told of a change."""
        floor = self.charged
        if self.pace is not None and self._queue and not self.apart:
            floor -= MOST_DONE * next(iter(self._queue)).tokens
        return floor + self.charged_elsewhere

    def line(self, then: float) -> float:
        """What would wait at that time by its pace, if the oldest request could be computed for ever: it falls by the
        pace, or not at all, and `wait` is never below it."""
        line = self.charged + self.charged_elsewhere
        if self.pace is not None and self._queue and not self.apart and self._head_since < inf:
            line -= (then - self._head_since) * self.pace
        return line

    def oldest(self) -> Lease | None:
        """The one whose first token has been awaited for longest."""
        return next(iter(self._queue)) if self._queue else None

    def penalise(self, tokens: float, now: float) -> None:
        """A request of so many prompt tokens failed here."""
        left = self.penalty * 0.5 ** ((now - self._penalised_at) / PENALTY_HALF_LIFE)
        self.penalty, self._penalised_at = left + PENALTY_FACTOR * tokens, now
        self._others = True

    def carry(self, tokens: float) -> None:
        """A prompt of so many tokens goes there, whoever sends it."""
        self.traffic += tokens
        for reader in self.readers:
            reader.traffic += tokens
        self.tell()

    def tell(self) -> None:
        """Something changed that others keep an order by."""
        for late in self.late:
            late.add(self)

    def hear_siblings(self, in_flight: int, waiting: int, charged: float) -> None:
        """What the other processes of this machine have at this worker now, all together."""
        self.elsewhere = in_flight
        self.waiting_elsewhere = waiting
        self.charged_elsewhere = charged
        self._hear()
        self.tell()

    def hear_replica(self, teller: str, waiting: int, charged: float, until: float) -> None:
        """What another replica has here now; it counts until then, in case nothing more is heard of that replica."""
        self.remote.pop(teller, None)
        if waiting:
            silent = [name for name, (_, _, last) in self.remote.items() if last < until - SILENT]
            for name in silent:
                del self.remote[name]
            self.remote[teller] = waiting, charged, until
        self._hear()

    def hear_queue(self, waiting: int, mean_work: float, now: float, lasting: float) -> None:
        """The worker says that so many requests wait there. Beyond our own, each stands for `mean_work` tokens, until
        `lasting` seconds from now; then the queue is unknown, which is not idle."""
        strangers = waiting - self.waiting - self.waiting_elsewhere
        strangers -= sum(theirs for theirs, _, until in self.remote.values() if now < until)
        self.queued = strangers * mean_work if strangers > 0 else 0.0
        self.queue_until = now + lasting
        self._hear()

    def _hear(self) -> None:
        self._others = bool(self.charged_elsewhere or self.queued or self.remote or self.penalty)

    def charge(self, tokens: float, now: float, *, streaming: bool) -> Lease:
        """Take one unit of this worker's attention."""
        wait = self.wait(now)
        lease = Lease(self, tokens, now, alone=streaming and wait <= 0.0)
        if not self._queue:
            self._head_since = now
        self._queue[lease] = None
        self.in_flight += 1
        self.waiting += 1
        self.charged += tokens
        if streaming and self.pace is not None:
            self._due[lease] = now + PATIENCE * (wait + tokens) / self.pace
        self.tell()
        return lease

    def relieve(self, lease: Lease, now: float | None = None) -> None:
        """Its tokens go back; `now` where its prefill is over, so that the next one's begins."""
        queue = self._queue
        if now is not None:
            self._head_since = now
        elif queue and next(iter(queue)) is lease:
            self._head_since = inf  # nobody knows when the next one's prefill began
        queue.pop(lease, None)
        if self._due:
            self._due.pop(lease, None)
        self.waiting -= 1
        self.charged = self.charged - lease.tokens if queue else 0.0  # sums drift; where nothing waits it is nothing
        self.tell()

    def learn_pace(self, tokens: float, seconds: float) -> None:
        """A request that had the worker's prefill to itself took that long for that many tokens."""
        if tokens < PACE_TOKENS or seconds <= 0.0:
            return
        seen, before = tokens / seconds, self.pace
        self.paced += 1
        pace = seen if before is None else before + (PACE_UP if seen > before else PACE_DOWN) * (seen - before)
        self.pace = pace
        for reader in self.readers:
            reader.pace_learnt(before, pace)
        self.tell()
