"""The latest decisions, for `GET /admin/decisions` and the page. Bounded; no prompt text."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from router.events import Chosen, Finished
from router.observe.bus import Bus

LATEST = 256


class Decisions:
    def __init__(self, bus: Bus, clock: Callable[[], float], latest: int = LATEST) -> None:
        self._clock = clock
        self._chosen: deque[tuple[float, Chosen]] = deque(maxlen=latest)
        self._finished: dict[str, Finished] = {}
        bus.on(Chosen, lambda event: self._chosen.append((clock(), event)))
        bus.on(Finished, self._note)

    def latest(self) -> list[dict[str, Any]]:
        """Newest first: the choice, `age_seconds`, and how it ended once it has."""
        now = self._clock()
        return [self._row(now - at, event) for at, event in reversed(self._chosen)]

    def _row(self, age: float, event: Chosen) -> dict[str, Any]:
        row: dict[str, Any] = {"age_seconds": round(age, 3), **msgspec.to_builtins(event)}
        end = self._finished.get(event.request_id)
        if end is not None:
            row.update(status=end.status, cached_tokens=end.cached_tokens, first_token_seconds=end.first_token_seconds,
                       seconds=end.seconds)  # fmt: skip
        return row

    def _note(self, event: Finished) -> None:
        self._finished[event.request_id] = event
        if len(self._finished) > LATEST:
            del self._finished[next(iter(self._finished))]
