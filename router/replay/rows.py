"""A row of a trace: when it came, in which session, and what was asked, once for each copy that is played."""

from __future__ import annotations

from collections.abc import Callable

from router.replay.item import Item

Make = Callable[[int], Item]  # copy number, 0 for the trace itself


class TraceError(ValueError):
    """The trace cannot be read. `line` counts from one; 0 where it is about the whole."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.line = line


class Row:
    """`at`: seconds since the trace began. A session's turn is sent only after the one before it has ended; where it is
    None for all, rows are sent as they came."""

    __slots__ = ("_items", "_make", "at", "session")

    def __init__(self, at: float, session: str | None, make: Make) -> None:
        self.at = at
        self.session = session
        self._make = make
        self._items: dict[int, Item] = {}

    def item(self, copy: int = 0) -> Item:
        """Made once: runs differ in their times, never in their prompts."""
        found = self._items.get(copy)
        if found is None:
            found = self._items[copy] = self._make(copy)
        return found


def in_time(rows: list[Row]) -> list[Row]:
    """Sorted, and the first at zero."""
    rows.sort(key=lambda row: row.at)
    begin = rows[0].at if rows else 0.0
    for row in rows:
        row.at -= begin
    return rows
