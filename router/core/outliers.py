"""Outliers: workers that do badly while the others do well, after Envoy's outlier detection.
(https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/outlier)

    error_share   too large a share of its requests failed in the window, and twice the others' median
    slow          its learnt pace is below the fleet's median by a large factor

Failures in a row are found by the health table itself. Paces are compared among workers that serve the same models, by
their weights where these differ, and only where at least three are known: a mixed fleet is normal, and of two workers
nobody can say which one is the exception. At most a share of the fleet is out at one time, whatever took it out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from router.core.fleet import Seat
from router.core.health import DOWN, READY, SUSPECT

LOOKS = 10  # in a window: as precise as it moves
OTHERS = 2.0  # times the others' median share that a worker's must be: requests that fail everywhere eject nobody
FEWEST = 3  # workers with a known pace, before a median means anything
EJECTABLE = frozenset((READY, SUSPECT))
ERROR_SHARE, SLOW = "error_share", "slow"


class OutlierLimits(msgspec.Struct, frozen=True):
    """As `health.outliers` in the settings."""

    error_share: float = 0.5
    latency_factor: float = 5.0
    least_requests: int = 10
    window_seconds: float = 30.0
    most_ejected: float = 0.5


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A worker's counts at a moment."""

    at: float
    answered: int
    failed: int


class Track:
    """One worker's marks, as old as the window, and how many paces it had been learnt from when it last came back."""

    __slots__ = ("marks", "paced")

    def __init__(self, now: float) -> None:
        self.marks = deque([Mark(now, 0, 0)])
        self.paced = 0

    def restart(self, seat: Seat, now: float) -> None:
        """What was before counts no more."""
        self.marks = deque([Mark(now, seat.answered, seat.failed)])
        self.paced = seat.load.paced

    def move(self, seat: Seat, now: float, window: float) -> tuple[int, int]:
        """Requests answered and failed in the window."""
        marks = self.marks
        if now - marks[-1].at >= window / LOOKS:
            marks.append(Mark(now, seat.answered, seat.failed))
        while len(marks) > 1 and marks[1].at <= now - window:
            marks.popleft()
        return seat.answered - marks[0].answered, seat.failed - marks[0].failed


class Outliers:
    def __init__(self, limits: OutlierLimits | None = None) -> None:
        self.limits = limits or OutlierLimits()
        self._tracks: dict[Seat, Track] = {}

    def look(self, seats: Sequence[Seat], now: float) -> list[tuple[Seat, str]]:
        """Who is to be ejected now, and why."""
        counts = self._counts(seats, now)
        room = int(self.limits.most_ejected * len(seats)) - sum(seat.health.state is DOWN for seat in seats)
        if room <= 0:
            return []
        found = dict.fromkeys(self._failing(counts), ERROR_SHARE)
        for seat in self._slow(seats):
            found.setdefault(seat, SLOW)
        out = list(found.items())[:room]
        for seat, _ in out:
            self._tracks[seat].restart(seat, now)
        return out

    def _counts(self, seats: Sequence[Seat], now: float) -> dict[Seat, tuple[int, int]]:
        tracks = {seat: self._tracks.get(seat) or Track(now) for seat in seats}
        self._tracks = tracks  # of workers that left nothing is kept
        counts = {}
        for seat, track in tracks.items():
            if seat.health.state in EJECTABLE:
                counts[seat] = track.move(seat, now, self.limits.window_seconds)
            else:
                track.restart(seat, now)
        return counts

    def _failing(self, counts: dict[Seat, tuple[int, int]]) -> list[Seat]:
        """The worst first."""
        shares = {
            seat: failed / (answered + failed) for seat, (answered, failed) in counts.items() if answered + failed
        }
        found = []
        for seat, share in shares.items():
            if share < self.limits.error_share or sum(counts[seat]) < self.limits.least_requests:
                continue
            others = [theirs for other, theirs in shares.items() if other is not seat]
            if not others or share >= OTHERS * median(others):
                found.append((share, seat))
        return [seat for _, seat in sorted(found, key=lambda each: -each[0])]

    def _slow(self, seats: Sequence[Seat]) -> list[Seat]:
        """The slowest first."""
        alike: dict[frozenset[str] | None, list[tuple[float, Seat]]] = {}
        for seat in seats:
            if seat.load.pace is not None and seat.health.state in EJECTABLE:
                alike.setdefault(seat.models, []).append((seat.load.pace / seat.weight, seat))
        found: list[tuple[float, Seat]] = []
        for group in alike.values():
            found += self._slow_among(group)
        return [seat for _, seat in sorted(found, key=lambda each: each[0])]

    def _slow_among(self, group: list[tuple[float, Seat]]) -> Iterable[tuple[float, Seat]]:
        if len(group) < FEWEST:
            return
        least = median(pace for pace, _ in group) / self.limits.latency_factor
        for pace, seat in group:
            if pace < least and seat.load.paced - self._tracks[seat].paced >= self.limits.least_requests:
                yield pace, seat
