"""The waiting room: who waits for a worker, for how long, who goes first, and who is refused.

A request enters when every worker that could take it is at its limit; it leaves for a worker, because its time is up,
because somebody more important took its place, or because its client went away. Bounded: of a full room the least
important goes, which may be the newcomer. More important is a lower priority's number; within one priority, a tenant
that has fewer waiting for its weight than another. Within a priority tenants take turns (`turns.py`).

Whoever can know that its time will be up before its turn is refused at once, with the time to come back after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from enum import Enum
from itertools import count
from math import inf

from router.core.drain import Drain
from router.core.patience import Hope
from router.core.turns import Turns
from router.errors import Overloaded, Refusal

LEAST_TOKENS = 64.0  # a turn costs as much at least: an answer takes time too, however short the prompt
MOST_PRIORITY = 10  # either way; 0 is in the middle, and where most are
LEAST_RETRY, MOST_RETRY = 1.0, 60.0  # seconds
CAUTION = 0.9  # of the longest wait: at the limit an estimate is wrong half the time, and the wait was for nothing
MOST_PASSED = 64  # that wait for their own worker, asked in one go
MOST_MODELS = 256  # whose pace is remembered


class Woken(Enum):
    """What one that was woken says."""

    GONE = "gone"  # it left the room
    LATER = "later"  # it waits for a worker of its own choice; others may have room for the next
    FULL = "full"  # no worker has room for its like
    SHUT = "shut"  # none has room for anybody


class Ticket:
    """A place in the room, held by one journey. `wake` is called when it may be its turn; `refused` when it is sent
    away. `within`: seconds that it has left in all; `hope`: it waits for this worker though another has room."""

    __slots__ = ("deadline", "entered", "hope", "lane", "model", "number", "priority", "refused", "tenant", "tokens",
                 "wake", "weight", "within")  # fmt: skip

    def __init__(
        self,
        wake: Callable[[], Woken],
        refused: Callable[[Refusal, str], None],
        *,
        priority: int = 0,
        tenant: str | None = None,
        weight: float = 1.0,
        tokens: float = 0.0,
        model: str | None = None,
        tried: tuple[str, ...] = (),
        within: float = inf,
        hope: Hope | None = None,
    ) -> None:
        self.wake, self.refused = wake, refused
        self.priority, self.tenant, self.weight = priority, tenant, weight
        self.tokens = max(tokens, LEAST_TOKENS)
        self.model = model
        self.lane: Hashable = (model, tried)
        self.within, self.hope = within, hope
        self.number = 0
        self.entered = self.deadline = 0.0


class WaitingRoom:
    def __init__(self, most: int, wait_seconds: float) -> None:
        self.most = most
        self.wait_seconds = wait_seconds
        self._waiting: dict[Ticket, None] = {}
        self._turns: dict[int, Turns[Ticket]] = {}
        self._drains: dict[str | None, Drain] = {}
        self._numbers = count(1)
        self.hoping: Counter[str] = Counter()  # those that wait for this worker though another has room

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<WaitingRoom {len(self)} of {self.most}>"

    def enter(self, ticket: Ticket, now: float) -> None:
        """Take a place. Raises Overloaded when there is none, or no hope."""
        if ticket.hope is None:
            self._see_hope(ticket, now)
        if len(self._waiting) >= self.most:
            victim = self._less_important(ticket)
            if victim is None:
                raise self._refusal("Every worker is at its limit and the queue is full", ticket, now)
            self.leave(victim, now)
            victim.refused(self._refusal("More important requests took the last places in the queue", victim, now),
                           "pushed_out")  # fmt: skip
        ticket.number = next(self._numbers)
        ticket.entered, ticket.deadline = now, now + self.wait_seconds
        self._waiting[ticket] = None
        turns = self._turns.get(ticket.priority)
        if turns is None:
            turns = Turns()
            self._turns = dict(sorted([*self._turns.items(), (ticket.priority, turns)]))
        turns.add(ticket)
        if ticket.hope is None:
            self._drain(ticket.model, now).enter(now)
        else:
            self.hoping[ticket.hope.worker] += 1

    def leave(self, ticket: Ticket, now: float, *, served: bool = False) -> bool:
        """Give the place back; `served`: to go to a worker. True the first time."""
        if self._waiting.pop(ticket, self) is self:
            return False
        turns = self._turns[ticket.priority]
        turns.remove(ticket, served=served)
        if not turns:
            del self._turns[ticket.priority]
        if ticket.hope is None:
            self._drain(ticket.model, now).leave(now, served=served)
        else:
            self.hoping[ticket.hope.worker] -= 1
            self.hoping += Counter()  # without those at nothing
        return True

    def pump(self) -> None:
        """A worker has room: wake those that wait, each in its turn, until none finds a worker.

        One that finds none may want a model whose workers are all full, so those for others still get their turn.
        """
        shut: set[Hashable] = set()
        passed: set[Ticket] = set()
        for priority in list(self._turns):
            while (turns := self._turns.get(priority)) and (ticket := turns.next(shut, passed)) is not None:
                said = ticket.wake()
                if said is Woken.SHUT:
                    return
                if said is Woken.FULL:
                    shut.add(ticket.lane)
                elif said is Woken.LATER or ticket in self._waiting:
                    passed.add(ticket)
                    if len(passed) == MOST_PASSED:
                        passed |= {each for each in self._waiting if each.hope is not None}

    def expire(self, now: float) -> None:
        """Send away those whose time is up."""
        for ticket in [ticket for ticket in self._waiting if ticket.deadline <= now]:
            if self.leave(ticket, now):
                ticket.refused(self._refusal("No worker had room within queue.wait_seconds", ticket, now), "expired")

    def turn_out(self, refusal: Refusal, now: float) -> None:
        """Send all away."""
        for ticket in list(self._waiting):
            if self.leave(ticket, now):
                ticket.refused(refusal, "expired")

    def retry_after(self, model: str | None, now: float) -> float:
        """Seconds in which those that wait for this model now will have gone, at the pace of late; bounded."""
        drain = self._drains.get(model)
        rate = drain.rate(now) if drain is not None else None
        if drain is None or not rate:
            return LEAST_RETRY
        return min(max(drain.waiting / rate, LEAST_RETRY), MOST_RETRY)

    def wait(self, ticket: Ticket, now: float) -> tuple[float, float | None]:
        """How many go before such a newcomer, and the seconds until its turn where the pace is known."""
        ahead = 0.0
        for priority, turns in self._turns.items():
            if priority < ticket.priority:
                ahead += turns.count(ticket.lane)
            elif priority == ticket.priority:
                ahead += turns.ahead(ticket.tenant, ticket.weight, ticket.lane)
        drain = self._drains.get(ticket.model)
        rate = drain.sure_rate(now) if drain is not None else None
        return ahead, (ahead + 1.0) / rate if rate else None

    def _see_hope(self, ticket: Ticket, now: float) -> None:
        ahead, wait = self.wait(ticket, now)
        if wait is None:
            return
        hasty = wait > CAUTION * ticket.within
        if hasty or (wait > CAUTION * self.wait_seconds and ahead >= 1.0):
            limit = "this request's own time limit" if hasty else "queue.wait_seconds"
            raise self._refusal(f"Every worker is at its limit and the wait is longer than {limit}", ticket, now)

    def _less_important(self, newcomer: Ticket) -> Ticket | None:
        """Whose place a newcomer may take: the latest of the tenant with most waiting, of the last priority."""
        if not self._turns or newcomer.hope is not None:
            return None
        priority, turns = next(reversed(self._turns.items()))
        tenant, burden = turns.heaviest()
        if priority == newcomer.priority:
            own = (turns.count_of(newcomer.tenant) + 1) / newcomer.weight
            if tenant == newcomer.tenant or own >= burden:
                return None
        elif priority < newcomer.priority:
            return None
        return turns.last_of(tenant)

    def _drain(self, model: str | None, now: float) -> Drain:
        drain = self._drains.get(model)
        if drain is None:
            if len(self._drains) >= MOST_MODELS:
                self._drains = {name: each for name, each in self._drains.items() if each.waiting}
            drain = self._drains[model] = Drain(now)
        return drain

    def _refusal(self, why: str, ticket: Ticket, now: float) -> Overloaded:
        seconds = self.retry_after(ticket.model, now)
        return Overloaded(f"{why}; try again later.", retry_after=seconds)
