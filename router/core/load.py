"""The ledger: what each worker has been charged with and not yet been relieved of.

A request charges the prefill tokens it is expected to need until its first token, and one unit of in-flight until its
end. Both go back exactly once, through its lease, whatever happened in between. Nothing else ever changes these
numbers: no probe, no poll and no clock resets them.

A worker's pace (prefill tokens a second) is learnt from streams that found it with nothing waiting. A worker that just
failed is not idle, however little waits there: a penalty stands for what it might cost to ask it again. A worker whose
oldest waiting request is overdue by that pace is held to be as far behind as it is late: that shows queues which no
count of tokens shows, such as a full batch.
"""

from __future__ import annotations

from math import inf

HALF_LIFE = 41.6  # seconds; halving in whole steps has the mean age of a decay with a time constant of 60 s
LEAST_WORK = 0.05  # of a prompt: reading it from the cache is not free
PACE_TOKENS = 64  # a request that computes fewer says little about the pace
PACE_UP, PACE_DOWN = 0.5, 0.05  # quick to believe in a fast worker, slow to forget it: a high percentile
MOST_DONE = 0.8  # of the request in prefill: by its pace it may be over, but it has not said so
PATIENCE = 2.0  # times what its pace promises before a request is late: running decodes slow prefill down
GRACE = 0.25  # seconds of lateness that mean nothing
SILENT = 60.0  # seconds after which a replica that tells no more is forgotten
PENALTY_FACTOR = 4.0  # a failure weighs as computing its prompt again does in the default policy
PENALTY_HALF_LIFE = 1.0  # seconds


class Load:
    """One worker's load, seen from this process.

    in_flight: requests chosen for it and not over
    charged: prefill tokens chosen for it whose first token has not come
    waiting: requests whose first token has not come
    traffic: prompt tokens sent to it recently, halved every `HALF_LIFE`
    elsewhere, waiting_elsewhere, charged_elsewhere: the same of the other processes of this machine
    apart: other gateways send here too, and do not say what
    remote: what other replicas said they have waiting and charged here, and until when that counts
    """

    __slots__ = ("_due", "_head_since", "_penalised_at", "_queue", "apart", "charged", "charged_elsewhere", "elsewhere",
                 "in_flight", "pace", "paced", "penalty", "queue_until", "queued", "remote", "traffic", "waiting",
                 "waiting_elsewhere")  # fmt: skip

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

    def __repr__(self) -> str:
        return f"<Load {self.in_flight} in flight, {self.charged:.0f} tokens waiting>"

    def wait(self, now: float) -> float:
        """Tokens that a new request would have to wait for."""
        wait = self.left(now) + self.charged_elsewhere
        if now < self.queue_until:
            wait += self.queued
        if self.remote:
            for _, charged, until in self.remote.values():
                if now < until:
                    wait += charged
        if self.pace is not None and self._due:
            late = now - next(iter(self._due.values())) - GRACE
            if late > 0:
                wait = max(wait, late * self.pace)
        if self.penalty:
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

    def oldest(self) -> Lease | None:
        """The one whose first token has been awaited for longest."""
        return next(iter(self._queue)) if self._queue else None

    def penalise(self, tokens: float, now: float) -> None:
        """A request of so many prompt tokens failed here."""
        left = self.penalty * 0.5 ** ((now - self._penalised_at) / PENALTY_HALF_LIFE)
        self.penalty, self._penalised_at = left + PENALTY_FACTOR * tokens, now

    def hear_siblings(self, in_flight: int, waiting: int, charged: float) -> None:
        """What the other processes of this machine have at this worker now, all together."""
        self.elsewhere = in_flight
        self.waiting_elsewhere = waiting
        self.charged_elsewhere = charged

    def hear_replica(self, teller: str, waiting: int, charged: float, until: float) -> None:
        """What another replica has here now; it counts until then, in case nothing more is heard of that replica."""
        self.remote.pop(teller, None)
        if waiting:
            silent = [name for name, (_, _, last) in self.remote.items() if last < until - SILENT]
            for name in silent:
                del self.remote[name]
            self.remote[teller] = waiting, charged, until

    def hear_queue(self, waiting: int, mean_work: float, now: float, lasting: float) -> None:
        """The worker says that so many requests wait there. Beyond our own, each stands for `mean_work` tokens, until
        `lasting` seconds from now; then the queue is unknown, which is not idle."""
        strangers = waiting - self.waiting - self.waiting_elsewhere
        strangers -= sum(theirs for theirs, _, until in self.remote.values() if now < until)
        self.queued = strangers * mean_work if strangers > 0 else 0.0
        self.queue_until = now + lasting

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
        return lease

    def relieve(self, lease: Lease, now: float | None = None) -> None:
        """Its tokens go back; `now` where its prefill is over, so that the next one's begins."""
        queue = self._queue
        if now is not None:
            self._head_since = now
        elif queue and next(iter(queue)) is lease:
            self._head_since = inf  # nobody knows when the next one's prefill began
        queue.pop(lease, None)
        self._due.pop(lease, None)
        self.waiting -= 1
        self.charged -= lease.tokens
        if not self._idle_of_charges():
            return
        self.charged = 0.0  # sums of floats drift; an idle worker has exactly nothing waiting

    def learn_pace(self, tokens: float, seconds: float) -> None:
        """A request that had the worker's prefill to itself took that long for that many tokens."""
        if tokens < PACE_TOKENS or seconds <= 0.0:
            return
        seen = tokens / seconds
        self.paced += 1
        if self.pace is None:
            self.pace = seen
        else:
            self.pace += (PACE_UP if seen > self.pace else PACE_DOWN) * (seen - self.pace)

    def _idle_of_charges(self) -> bool:
        return self.charged < 1e-6 or self.in_flight == 0


class Lease:
    """One unit of one worker's attention, held by one owner at a time. Every method may be called again."""

    __slots__ = ("_alone", "_charged", "_load", "_open", "prefill_seconds", "since", "tokens")

    def __init__(self, load: Load, tokens: float, now: float, *, alone: bool) -> None:
        self.tokens = tokens
        self._load = load
        self.since = now
        self._alone = alone
        self.prefill_seconds: float | None = None  # how long its prefill took, where it had the worker to itself
        self._charged = self._open = True

    @property
    def waits(self) -> bool:
        """Its first token has not come."""
        return self._charged

    def first_token(self, now: float) -> None:
        """Prefill is over: the charged tokens go back."""
        if self._charged:
            self._charged = False
            if self._alone:
                self.prefill_seconds = now - self.since
            self._load.relieve(self, now)

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
