"""Who holds which prefix: a bounded table from a rung's hash to the workers that were sent it.

An entry is worker -> mark, oldest first and at most `MOST_HOLDERS`; the mark is the number of tokens computed on that
worker when it was last sent the prefix. A worker still holds a prefix unless more tokens were computed on it
since than its cache has room for, or it was lost in between (`forget`). Rungs noted together share one entry object,
which keeps the table small and quick to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from router.core.room import Room
from router.core.steps import MOST_NOTED, Steps
from router.types import Fingerprint

MOST_HOLDERS: Final = 8  # enough that a home which spilled is not forgotten while others serve its prefix


class Entry:
    """The holders of some rungs that were noted together, the most recent last; `last` is the deepest of the rungs."""

    __slots__ = ("holders", "last")

    def __init__(self, holders: dict[str, float]) -> None:
        self.holders = holders
        self.last = 0


class Holders:
    """Bounded in two generations: when the young one holds half of `limit` hashes it becomes the old one, and what the
    old one held and nobody touched since is gone. That is nearly least-recently-used, without moving every hash at
    every request. About 150 bytes a hash.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self.limit = limit
        self._young: dict[int, Entry] = {}
        self._old: dict[int, Entry] = {}
        self._total = 0.0
        self._computed: dict[str, float] = {}  # begins at the total then, so marks of a former life are older
        self._lost_at: dict[str, float] = {}
        self._rooms: dict[str, Room] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def look(self, prompt: Fingerprint, ages: dict[str, float] | None = None) -> tuple[dict[str, int], int]:
        """The deepest rung, in bytes, that each worker is expected to hold (workers that hold none are absent), and
        the index of the deepest rung that anybody was ever sent, -1 for none.

        ages: filled with the tokens computed on each worker since it was sent this prefix last, had it room or not
        """
        hashes = prompt.hashes
        held: dict[str, int] = {}
        ages = {} if ages is None else ages
        first = self._get(hashes[0]) if hashes else None
        if first is None:
            return held, -1
        if self._get(hashes[-1]) is first:  # noted together, so everything between was too
            self._read(first, prompt.depths[-1], held, ages)
            return held, len(hashes) - 1
        entry, depth, deepest = first, prompt.depths[0], 0
        for at in range(1, len(hashes)):
            found = self._get(hashes[at])
            if found is not entry:
                self._read(entry, depth, held, ages)
                if found is None:
                    return held, deepest
                entry = found
            depth, deepest = prompt.depths[at], at
        self._read(entry, depth, held, ages)
        return held, deepest

    def look_further(self, steps: Steps, held: dict[str, int], ages: dict[str, float]) -> None:
        """The same for the steps in the gap after the deepest rung."""
        entry, depth = None, 0
        for value, step in zip(steps.hashes, steps.depths, strict=True):
            found = self._get(value)
            if found is not entry:
                if entry is not None:
                    self._read(entry, depth, held, ages)
                if found is None:
                    return
                entry = found
            depth = step
        if entry is not None:
            self._read(entry, depth, held, ages)

    def note(self, hashes: Sequence[int], worker: str, computed: float) -> None:
        """A prompt with these hashes, shallowest first, goes to `worker`, which computes that many tokens for it."""
        before = self._computed.get(worker)
        if before is None:
            before = self._lost_at[worker] = self._total
        self._total += computed
        mark = self._computed[worker] = before + computed
        if not hashes:
            return
        entry = self._young.get(hashes[0])
        if entry is not None and entry.last == hashes[-1] and len(entry.holders) == 1 and worker in entry.holders:
            entry.holders[worker] = mark  # the same prompt, or its like, on the worker that alone holds it
            return
        self._note_each(hashes, worker, mark)
        if len(self._young) + MOST_NOTED > self.limit // 2:
            self._old, self._young = self._young, {}

    def _note_each(self, hashes: Sequence[int], worker: str, mark: float) -> None:
        old: Entry | None = None
        new = Entry({worker: mark})
        for value in hashes:
            found = self._get(value)
            if found is not old:
                old, new = found, _renewed(found, worker, mark)
            self._young[value] = new
            new.last = value

    def _get(self, value: int) -> Entry | None:
        return self._young.get(value) or self._old.get(value)

    def room(self, worker: str, tokens: float) -> None:
        """The engine says how many tokens its cache holds; unknown room is learnt, and ages no entry until then."""
        self._room(worker).tell(tokens)

    def learn(self, worker: str, age: float | None, expected: float, delivered: float) -> None:
        """So many tokens of a prefix were expected cached there, and so many were; `age` as `look` gave it."""
        if age is not None and worker in self._computed:
            computed = self._computed.get(worker, 0.0) - self._lost_at.get(worker, 0.0)
            self._room(worker).learn(age, expected, delivered, computed)

    def _room(self, worker: str) -> Room:
        room = self._rooms.get(worker)
        if room is None:
            room = self._rooms[worker] = Room()
        return room

    def forget(self, worker: str) -> None:
        """The worker lost its cache: what it was sent so far is there no more."""
        if worker in self._computed:
            self._lost_at[worker] = self._computed[worker]

    def remove(self, worker: str) -> None:
        """The worker is known no more. Its entries are ignored from now on and age out of the table."""
        for known in (self._computed, self._lost_at, self._rooms):
            known.pop(worker, None)
        if not self._computed:  # nobody is left who could hold anything
            self._young, self._old = {}, {}

    def _read(self, entry: Entry, depth: int, held: dict[str, int], ages: dict[str, float]) -> None:
        for worker, mark in entry.holders.items():
            computed = self._computed.get(worker)
            if computed is None or mark <= self._lost_at[worker]:
                continue
            age = ages[worker] = computed - mark
            room = self._rooms.get(worker)
            if room is None or (age <= room.tokens and not room.is_barren):
                held[worker] = depth


def _renewed(entry: Entry | None, worker: str, mark: float) -> Entry:
    others = [pair for pair in entry.holders.items() if pair[0] != worker] if entry is not None else []
    return Entry(dict([*others[-(MOST_HOLDERS - 1) :], (worker, mark)]))
