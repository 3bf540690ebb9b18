"""The consistent-hash ring: a key's workers, nearest first.

uhashring places each worker's points by xxHash. Consistent hashing (Karger et al., 1997): when a worker leaves, only
its own keys move, each to the worker that came second for it; when it comes back they return. Members are placed in
the order of their names, so the order in which they were learned never matters, not even where two points collide.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping

from uhashring import HashRing
from xxhash import xxh3_64_intdigest

FEW = 8  # among n workers, fewer than the root of an eighth of them are found sooner by looking at their own points
AROUND = 1 << 64  # points lie below it
POINTS = 256  # a worker of weight 1; the largest share of 10 workers is then mostly 1.1 to 1.25 of the mean


class Ring:
    """Immutable in use: `place` builds a new set of points, readers never see half of one."""

    def __init__(self) -> None:
        self._points: list[int] = []
        self._owners: list[str] = []
        self._members: dict[str, float] = {}
        self._places: dict[str, list[int]] = {}  # each worker's own points

    def __repr__(self) -> str:
        return f"<Ring of {len(self._members)}: {', '.join(self._members)}>"

    def __len__(self) -> int:
        return len(self._members)

    def place(self, members: Mapping[str, float]) -> None:
        """Make the ring equal to these members and their weights (points in proportion, at least one)."""
        ordered = {name: members[name] for name in sorted(members)}
        if ordered == self._members:
            return
        nodes = {name: {"vnodes": max(1, round(POINTS * weight))} for name, weight in ordered.items()}
        points = HashRing(nodes, hash_fn=_place).get_points() if nodes else []
        self._points = [point for point, _ in points]
        self._owners = [owner for _, owner in points]
        places: dict[str, list[int]] = {name: [] for name in ordered}
        for point, owner in points:
            places[owner].append(point)
        self._places = places
        self._members = ordered

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


def _place(text: str) -> int:
    return int(xxh3_64_intdigest(text.encode()))
