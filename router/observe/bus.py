"""Events to listeners. A listener that fails is logged and never stops a request."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from router.events import Event

E = TypeVar("E", bound=Event)

log = logging.getLogger("router")


class Bus:
    def __init__(self) -> None:
        self._listeners: dict[type, tuple[Callable[[Any], None], ...]] = {}

    def on(self, kind: type[E], listener: Callable[[E], None]) -> None:
        """`listener` is told of every event of this kind."""
        self._listeners[kind] = (*self._listeners.get(kind, ()), listener)

    def emit(self, event: Event) -> None:
        for listener in self._listeners.get(type(event), ()):
            try:
                listener(event)
            except Exception:
                log.exception("a listener failed on %s", type(event).__name__)
