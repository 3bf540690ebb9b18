"""The only place that reads the time."""

from __future__ import annotations

from time import gmtime, monotonic, strftime, time

__all__ = ["Stamp", "monotonic"]


class Stamp:
    """The wall clock in ISO 8601 to the millisecond, for logs. Made once a millisecond at most."""

    def __init__(self) -> None:
        self._millisecond = self._second = 0
        self._prefix = self._made = b""

    def __call__(self) -> bytes:
        now = int(time() * 1000)
        if now != self._millisecond:
            self._millisecond = now
            second = now // 1000
            if second != self._second:
                self._second = second
                self._prefix = strftime("%Y-%m-%dT%H:%M:%S", gmtime(second)).encode()
            self._made = b"%s.%03dZ" % (self._prefix, now % 1000)
        return self._made
