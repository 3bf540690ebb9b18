"""What every process of this machine has at every worker now: an array in shared memory, one row a process.

A process writes its own row and reads the others', without locks. A row says for which workers its numbers stand: their
ids' 64-bit hashes in the row's own order, so workers may come and go in each process by itself, and the hash of that
list seals it, so one that was read half-written is known. The numbers themselves may be torn or stale by a moment:
they are advice, and what is no credible number counts as nothing.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from math import inf
from operator import add
from typing import Any

from xxhash import xxh64_intdigest

MOST_WORKERS = 1024  # a row; the load of workers beyond is not shared
FIELDS = 3  # in flight, waiting, charged tokens
NOTHING = (0.0,) * FIELDS
STALE_SECONDS = 1.0  # a row whose process has not written for so long counts as nothing
MOST_CREDIBLE = 1e12
BEAT, BUSY, SEAL, COUNT, IDS = range(5)  # the words of a row's head; the ids follow, then the numbers
NUMBERS = IDS + MOST_WORKERS
ROW_WORDS = NUMBERS + FIELDS * MOST_WORKERS


def table_bytes(processes: int) -> int:
    return 8 * ROW_WORDS * processes


def clear(memory: memoryview, process: int) -> None:
    """That process has ended: its row counts as nothing."""
    start = process * ROW_WORDS
    floats, words = memory.cast("B").cast("d"), memory.cast("B").cast("Q")
    floats[start + BEAT] = floats[start + BUSY] = -inf
    words[start + SEAL] = 0


class Row:
    """A process's own row, and what it reads of the others. `now` is of a clock that all of them share."""

    def __init__(self, memory: memoryview, own: int, processes: int) -> None:
        plain = memory.cast("B")
        self._words = plain.cast("Q")
        self._floats: memoryview[float] = plain.cast("d")
        self._own = own * ROW_WORDS
        self.rows = processes
        self._others = [each * ROW_WORDS for each in range(processes) if each != own]
        self._hashes: list[int] = []
        self._seal = 0
        self._places: dict[int, tuple[int, list[int]]] = {}  # row -> its seal, and where my workers stand in it

    def name(self, ids: Sequence[str]) -> None:
        """From now on my numbers stand for these workers."""
        self._hashes = [xxh64_intdigest(each.encode()) for each in ids[:MOST_WORKERS]]
        self._places = {}
        self._words[self._own + SEAL] = 0
        count, start = len(self._hashes), self._own + IDS
        self._words[start : start + count] = array("Q", self._hashes)
        start = self._own + NUMBERS
        self._floats[start : start + FIELDS * count] = array("d", [0.0] * (FIELDS * count))
        self._words[self._own + COUNT] = count
        self._seal = _seal(self._hashes)
        self._words[self._own + SEAL] = self._seal

    def write(self, numbers: Sequence[float], now: float, *, busy: bool) -> None:
        """My numbers, `FIELDS` of each worker in the order of their names; `busy`: the others should look often."""
        most = FIELDS * len(self._hashes)
        start = self._own + NUMBERS
        self._floats[start : start + min(len(numbers), most)] = array("d", numbers[:most])
        self._floats[self._own + BUSY] = now if busy else -inf
        self._floats[self._own + BEAT] = now

    def put(self, place: int, numbers: tuple[float, float, float], now: float) -> None:
        """One worker's numbers, by its place among the names, ahead of the next `write`."""
        if place < len(self._hashes):
            start = self._own + NUMBERS + FIELDS * place
            self._floats[start], self._floats[start + 1], self._floats[start + 2] = numbers
            self._floats[self._own + BUSY] = self._floats[self._own + BEAT] = now

    def anyone_busy(self, now: float) -> bool:
        """Some other process has something in flight."""
        floats, since = self._floats, now - STALE_SECONDS
        return any(floats[start + BUSY] > since for start in self._others)

    def read(self, now: float) -> list[float] | None:
        """The sums over all other processes, in the order of my names; None when none of them has written lately."""
        total: list[float] | None = None
        since = now - STALE_SECONDS
        for start in self._others:
            if self._floats[start + BEAT] > since:
                numbers = self._numbers(start)
                if numbers is not None:
                    total = numbers if total is None else list(map(add, total, numbers))
        return total

    def _numbers(self, start: int) -> list[float] | None:
        """One row's numbers in the order of my names."""
        count, seal = self._words[start + COUNT], self._words[start + SEAL]
        if not seal or count > MOST_WORKERS:
            return None
        view: Any = self._floats[start + NUMBERS : start + NUMBERS + FIELDS * count]
        numbers: list[float] = view.tolist()
        if seal == self._seal and count == len(self._hashes):
            return numbers
        places = self._places.get(start)
        if places is None or places[0] != seal:
            hashes: list[int] = self._words[start + IDS : start + IDS + count].tolist()
            if _seal(hashes) != seal:
                return None  # it is being written
            found = {each: FIELDS * place for place, each in enumerate(hashes)}
            places = self._places[start] = seal, [found.get(each, -1) for each in self._hashes]
        mine: list[float] = []
        for at in places[1]:
            mine += numbers[at : at + FIELDS] if 0 <= at <= len(numbers) - FIELDS else NOTHING
        return mine


def credible(number: float) -> float:
    """The number, or nothing where it is none that a load can be."""
    return number if 0.0 <= number <= MOST_CREDIBLE else 0.0


def _seal(hashes: Sequence[int]) -> int:
    """Never 0, which says that there is no list."""
    return xxh64_intdigest(struct.pack(f"<{len(hashes)}Q", *hashes)) | 1
