"""The consistent-hash ring: a key's workers, nearest first.

uhashring places each worker's points by xxHash. Consistent hashing (Karger et al., 1997): when a worker leaves, only
its own keys move, each to the worker that came second for it; when it comes back they return. Where the points of two
workers collide, the one whose name comes last has the point, so the order in which they were learned never matters.

A worker's points depend on its name and its weight alone, so a change touches only the points of those that changed:
the ring is then what uhashring would give of all members, without placing the others anew.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from uhashring import HashRing
from xxhash import xxh3_64_intdigest

FEW: Final = (
    8  # among n workers, fewer than the root of an eighth of them are found sooner by looking at their own points
)
AROUND: Final = 1 << 64  # points lie below it
POINTS: Final = 256  # a worker of weight 1; the largest share of 10 workers is then mostly 1.1 to 1.25 of the mean


class Ring:
    """Immutable in use: `place` builds a new set of points, readers never see half of one."""

    def __init__(self) -> None:
        self._points: list[int] = []
        self._owners: list[str] = []
        self._members: dict[str, float] = {}
        self._places: dict[str, list[int]] = {}  # each worker's own points
        self._contested: dict[int, list[str]] = {}  # points that several have, who are ordered; the last owns it

    def __repr__(self) -> str:
        return f"<Ring of {len(self._members)}: {', '.join(self._members)}>"

    def __len__(self) -> int:
        return len(self._members)

    def place(self, members: Mapping[str, float]) -> None:
        """Make the ring equal to these members and their weights (points in proportion, at least one)."""
        ordered = {name: members[name] for name in sorted(members)}
        if ordered == self._members:
            return
        claims = self._claims(ordered)
        self._merge(claims)
        for point, names in claims.items():
            self._contested.pop(point, None)
            if len(names) > 1:
                self._contested[point] = names
        self._members = ordered

    def _claims(self, members: Mapping[str, float]) -> dict[int, list[str]]:
        """Who has each point that somebody gains or loses by this change, in order."""
        claims: dict[int, list[str]] = {}
        for name in sorted(self._members.keys() | members.keys()):
            before, after = self._members.get(name), members.get(name)
            if before != after:
                had, has = _points_of(name, before), _points_of(name, after)
                for point in had - has:
                    self._claimants(point, claims).remove(name)
                for point in has - had:
                    insort(self._claimants(point, claims), name)
        return claims

    def _claimants(self, point: int, claims: dict[int, list[str]]) -> list[str]:
        found = claims.get(point)
        if found is None:
            found = list(self._contested.get(point, ()))
            if not found:
                at = bisect_left(self._points, point)
                if at < len(self._points) and self._points[at] == point:
                    found.append(self._owners[at])
            claims[point] = found
        return found

    def _merge(self, claims: dict[int, list[str]]) -> None:
        """What lies between two points that change is taken over in one piece."""
        points: list[int] = []
        owners: list[str] = []
        lost: dict[str, set[int]] = {}
        won: dict[str, list[int]] = {}
        done, old, old_owners = 0, self._points, self._owners
        for point in sorted(claims):
            at = bisect_left(old, point, done)
            points += old[done:at]
            owners += old_owners[done:at]
            done = at
            if at < len(old) and old[at] == point:
                lost.setdefault(old_owners[at], set()).add(point)
                done = at + 1
            if claims[point]:
                owner = claims[point][-1]
                points.append(point)
                owners.append(owner)
                won.setdefault(owner, []).append(point)
        self._points = points + old[done:]
        self._owners = owners + old_owners[done:]
        self._hand_over(lost, won)

    def _hand_over(self, lost: dict[str, set[int]], won: dict[str, list[int]]) -> None:
        places = dict(self._places)
        for name in lost.keys() | won.keys():
            gone = lost.get(name, set())
            kept = [point for point in places.get(name, ()) if point not in gone]
            own = sorted(kept + won.get(name, []))
            if own:
                places[name] = own
            else:
                places.pop(name, None)  # it left
        self._places = places

    def walk(self, key: int) -> Iterator[str]:
        """Each worker once, nearest first. Lazy: the first steps cost no more than they need."""
        owners = self._owners
        if not owners:
            return
        start = bisect_left(self._points, key)
        seen: set[str] = set()
        left = len(self._members)
        for at in range(start, start + len(owners)):
            owner = owners[at % len(owners)]
            if owner not in seen:
                seen.add(owner)
                yield owner
                left -= 1
                if not left:
                    return

    def home(self, key: int) -> str | None:
        """The ring's first choice, available or not; None on an empty ring."""
        if not self._owners:
            return None
        at = bisect_left(self._points, key)
        return self._owners[at] if at < len(self._owners) else self._owners[0]

    def nearest(self, key: int, among: Collection[str]) -> str | None:
        """The first worker on the walk that is one of `among`."""
        if FEW * len(among) * len(among) < len(self._members):
            return self._nearest_of_few(key, among)
        owners = self._owners
        start = bisect_left(self._points, key)
        for at in range(start, len(owners)):
            if owners[at] in among:
                return owners[at]
        for at in range(min(start, len(owners))):
            if owners[at] in among:
                return owners[at]
        return None

    def in_order(self, key: int, among: Collection[str]) -> Iterator[str]:
        """All of `among` that are on the ring, as the walk meets them."""
        if FEW * len(among) < len(self._members):
            yield from sorted((name for name in among if name in self._places), key=lambda name: self._ahead(key, name))
            return
        left = len(among)
        for worker in self.walk(key) if left else ():
            if worker in among:
                yield worker
                left -= 1
                if not left:
                    return

    def _nearest_of_few(self, key: int, few: Collection[str]) -> str | None:
        """The one whose own next point comes first."""
        found, least = None, AROUND
        for name in few:
            if name in self._places:
                ahead = self._ahead(key, name)
                if ahead < least:
                    found, least = name, ahead
        return found

    def _ahead(self, key: int, name: str) -> int:
        """How far it is to this worker's next point."""
        points = self._places[name]
        at = bisect_left(points, key)
        return points[at] - key if at < len(points) else points[0] - key + AROUND


def _points_of(name: str, weight: float | None) -> set[int]:
    """Where a member has points, whoever else has them; nowhere without a weight, as it is no member then."""
    if weight is None:
        return set()
    nodes = {name: {"vnodes": max(1, round(POINTS * weight))}}
    return {point for point, _ in HashRing(nodes, hash_fn=_place).get_points()}


def _place(text: str) -> int:
    return int(xxh3_64_intdigest(text.encode()))
