"""Which names of models the series of metrics may bear: those that some worker names, and so many of them at most.

Adapters come and go under names of their own, and a series stays until the gateway ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MOST_MODELS: Final = 500
OTHER: Final = "other"


class ModelNames:
    def __init__(self, known: Callable[[str], bool], most: int = MOST_MODELS) -> None:
        self._known = known
        self._most = most
        self._shown: set[str] = set()

    def shown(self, model: str) -> str:
        """The name itself, or that of all others together."""
        if not self._known(model):
            return OTHER
        if model not in self._shown:
            if len(self._shown) >= self._most:
                return OTHER
            self._shown.add(model)
        return model
