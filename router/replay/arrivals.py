"""When requests come: a trace's rows at some multiple of its own rate.

Plain traces: all times are divided by the scale; several copies, each with blocks of its own, are played at once, so
that a fleet as many times as large has as many times as much to do. A copy begins somewhere in the trace, drawn by
dice, and goes on at its beginning where it ends: their peaks do not meet. Session traces: the sessions' starts are
divided, the pauses within a session stay as they were, and each session is played in several copies (what sessions
share stays shared); a copy starts at a moment drawn over the whole trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from router.replay.item import Request
from router.replay.rows import Row

WIDEST = 3.0  # seconds: the coarsest stamps of the public traces
COPIES = {8: 4, 16: 6}  # workers -> copies of each session, so that there is enough to do


class Arrivals:
    """One draw of the dice; requests are made anew for each run."""

    def __init__(self, rows: Sequence[Row], dice: Random, copies: int = 1) -> None:
        self._rows = rows
        self._times = spread([row.at for row in rows], dice)
        self._starts: list[tuple[int, float, list[int]]] = []  # copy, start, rows of one session
        self._merged: list[tuple[float, int, int]] = []  # time, row, copy of a plain trace played several times at once
        if has_sessions(rows):
            self._draw(dice, copies)
        elif copies > 1:
            self._merge(dice, copies)

    def at(self, scale: float) -> list[Request]:
        """Fresh requests in the order of their times."""
        if self._merged:
            return [Request(self._rows[row].item(copy), at / scale) for at, row, copy in self._merged]
        if not self._starts:
            return [Request(row.item(), at / scale) for row, at in zip(self._rows, self._times, strict=True)]
        made = []
        for copy, start, turns in self._starts:
            before: Request | None = None
            for at in turns:
                due = start / scale + self._times[at] - self._times[turns[0]]
                request = Request(self._rows[at].item(copy), due)
                if before is not None:
                    request.opens = False
                    before.following = request
                before = request
                made.append(request)
        made.sort(key=lambda request: request.due)
        return made

    def _merge(self, dice: Random, copies: int) -> None:
        times = self._times
        length = times[-1] * (1 + 1 / len(times))  # and a mean pause before it begins anew
        for copy in range(copies):
            begin = dice.uniform(0.0, length) if copy and length else 0.0
            self._merged += (((at + begin) % length if length else 0.0, row, copy) for row, at in enumerate(times))
        self._merged.sort()

    def _draw(self, dice: Random, copies: int) -> None:
        sessions: dict[object, list[int]] = {}
        for at, row in enumerate(self._rows):
            sessions.setdefault(at if row.session is None else row.session, []).append(at)
        latest = max(self._times[turns[0]] for turns in sessions.values())
        for copy in range(copies):
            for turns in sessions.values():
                start = dice.uniform(0.0, latest) if copy else self._times[turns[0]]
                self._starts.append((copy, start, turns))


def has_sessions(rows: Sequence[Row]) -> bool:
    return any(row.session is not None for row in rows)


def spread(times: Sequence[float], dice: Random) -> list[float]:
    """Ascending times with ties drawn evenly over the time to the next stamp, at most `WIDEST`: a replay of stamps in
    steps of 3 s would be a burst every 3 s."""
    found = list(times)
    begin = 0
    while begin < len(times):
        end = begin
        while end < len(times) and times[end] == times[begin]:
            end += 1
        if end - begin > 1:
            width = min(times[end] - times[begin], WIDEST) if end < len(times) else WIDEST
            found[begin:end] = sorted(times[begin] + dice.uniform(0.0, width) for _ in range(begin, end))
        begin = end
    return [at - found[0] for at in found]
