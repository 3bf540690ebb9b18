"""Whose turn it is among tenants: deficit round robin (Shreedhar and Varghese, 1995), counted in prompt tokens.

When a tenant's turn comes it is given `QUANTUM` tokens times its weight, and goes on as long as they last. What is left
stays for its next turn, and is lost when nobody of it waits any more. So while two tenants wait, what each was served
for its weight differs by no more than a quantum and the longest prompt of each. Within a tenant: first come, first
served.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from math import ceil
from typing import Generic, Protocol, TypeVar

QUANTUM = 512.0  # tokens


class Waiting(Protocol):
    """lane: what it waits for; number: grows with every one that comes; tokens: what its turn costs"""

    @property
    def tenant(self) -> str | None: ...
    @property
    def weight(self) -> float: ...
    @property
    def lane(self) -> Hashable: ...
    @property
    def number(self) -> int: ...
    @property
    def tokens(self) -> float: ...


One = TypeVar("One", bound=Waiting)


class Share(Generic[One]):
    """One tenant's: those that wait, by lane, and what is left of its turn."""

    __slots__ = ("begun", "count", "deficit", "lanes", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.deficit = 0.0
        self.begun = False  # its turn is on
        self.count = 0
        self.lanes: dict[Hashable, dict[One, None]] = {}

    def first(self, shut: Collection[Hashable], passed: Collection[One]) -> One | None:
        """The one that came first, but for shut lanes and those passed over."""
        found: One | None = None
        for lane, waiting in self.lanes.items():
            if lane not in shut:
                head = next((each for each in waiting if each not in passed), None)
                if head is not None and (found is None or head.number < found.number):
                    found = head
        return found

    def last(self) -> One:
        """The one that came last."""
        return max((next(reversed(waiting)) for waiting in self.lanes.values()), key=lambda each: each.number)

    def earn(self, turns: int) -> None:
        self.deficit += turns * QUANTUM * self.weight

    def lacks(self, head: One) -> int:
        """Turns until it can pay for this one."""
        return ceil((head.tokens - self.deficit) / (QUANTUM * self.weight))


class Turns(Generic[One]):
    def __init__(self) -> None:
        self._shares: dict[str | None, Share[One]] = {}  # in the order of their turns

    def __len__(self) -> int:
        return sum(share.count for share in self._shares.values())

    def add(self, one: One) -> None:
        share = self._shares.get(one.tenant)
        if share is None:
            share = self._shares[one.tenant] = Share(one.weight)
        share.weight = one.weight
        share.count += 1
        share.lanes.setdefault(one.lane, {})[one] = None

    def remove(self, one: One, *, served: bool) -> None:
        share = self._shares[one.tenant]
        lane = share.lanes[one.lane]
        del lane[one]
        share.count -= 1
        if not lane:
            del share.lanes[one.lane]
        if not share.count:
            del self._shares[one.tenant]
        elif served:
            share.deficit -= one.tokens

    def next(self, shut: Collection[Hashable] = (), passed: Collection[One] = ()) -> One | None:
        """Whose turn it is. It stays theirs until they are removed, or passed over."""
        heads = {}
        for tenant, share in self._shares.items():
            head = share.first(shut, passed)
            if head is not None:
                heads[tenant] = share, head
        while heads:
            for tenant, (share, head) in heads.items():
                if not share.begun:
                    share.begun = True
                    share.earn(1)
                if share.deficit >= head.tokens:
                    return head
                share.begun = False
                self._shares[tenant] = self._shares.pop(tenant)  # to the end
            idle = min(share.lacks(head) for share, head in heads.values()) - 1
            if idle > 0:  # rounds in which nobody could go, all at once
                for share, _ in heads.values():
                    share.earn(idle)
        return None

    def count(self, lane: Hashable) -> int:
        """How many wait in this lane."""
        return sum(len(share.lanes.get(lane, ())) for share in self._shares.values())

    def ahead(self, tenant: str | None, weight: float, lane: Hashable) -> float:
        """How many of this lane go before a newcomer of this tenant: its own, and of others as many as their shares
        let go in that time."""
        own = self._shares.get(tenant)
        before = len(own.lanes.get(lane, ())) if own is not None else 0
        others = (share for name, share in self._shares.items() if name != tenant)
        return before + sum(
            min(len(other.lanes.get(lane, ())), (before + 1) * other.weight / weight) for other in others
        )

    def heaviest(self) -> tuple[str | None, float]:
        """The tenant with most waiting for its weight, and how many those are."""
        tenant, share = max(self._shares.items(), key=lambda item: item[1].count / item[1].weight)
        return tenant, share.count / share.weight

    def last_of(self, tenant: str | None) -> One:
        return self._shares[tenant].last()

    def count_of(self, tenant: str | None) -> int:
        """How many of this tenant wait."""
        share = self._shares.get(tenant)
        return share.count if share is not None else 0
