"""The latest decisions, for `GET /admin/decisions` and the page. Bounded; no prompt text."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Final

import msgspec

from router.events import Chosen, Finished
from router.observe.bus import Bus

LATEST: Final = 256


class Decisions:
    """Keeps the events as they are; they are put together only when somebody asks."""

    def __init__(self, bus: Bus, clock: Callable[[], float], latest: int = LATEST) -> None:
        self._clock = clock
        self._chosen: deque[Chosen] = deque(maxlen=latest)
        self._finished: deque[Finished] = deque(maxlen=latest)
        bus.on(Chosen, self._chosen.append)
        bus.on(Finished, self._finished.append)

    def latest(self) -> list[dict[str, Any]]:
        """Newest first: the choice, `age_seconds`, and how it ended once it has."""
        ended = {event.request_id: event for event in self._finished}
        now = self._clock()
        return [_row(now, event, ended.get(event.request_id)) for event in reversed(self._chosen)]


def joined(lists: Iterable[list[dict[str, Any]]], latest: int = LATEST) -> list[dict[str, Any]]:
    """The latest of several processes, newest first."""
    return sorted(chain.from_iterable(lists), key=lambda row: float(row["age_seconds"]))[:latest]


def _row(now: float, event: Chosen, end: Finished | None) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(event)
    row["age_seconds"] = round(now - row.pop("at"), 3)
    if end is not None:
        row.update(status=end.status, cached_tokens=end.cached_tokens, first_token_seconds=end.first_token_seconds,
                   seconds=end.seconds)  # fmt: skip
    return row
