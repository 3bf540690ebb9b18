"""What a request holds of its worker until it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.core.load import Load


class Lease:
    """One unit of one worker's attention, held by one owner at a time. Every method may be called again."""

    __slots__ = ("_alone", "_charged", "_load", "_open", "prefill_seconds", "since", "tokens")

    def __init__(self, load: Load, tokens: float, now: float, *, alone: bool) -> None:
        self.tokens = tokens
        self._load = load
        self.since = now
        self._alone = alone
        self.prefill_seconds: float | None = None  # how long its prefill took, where it had the worker to itself
        self._charged = self._open = True

    @property
    def waits(self) -> bool:
        """Its first token has not come."""
        return self._charged

    def first_token(self, now: float) -> None:
        """Prefill is over: the charged tokens go back."""
        if self._charged:
            self._charged = False
            if self._alone:
                self.prefill_seconds = now - self.since
            self._load.relieve(self, now)

    def release(self) -> bool:
        """All that is still held goes back. True the first time."""
        if not self._open:
            return False
        self._open = False
        load = self._load
        load.in_flight -= 1
        if self._charged:
            self._charged = False
            load.relieve(self)
        else:
            load.tell()
        return True
