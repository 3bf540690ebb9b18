"""The only place that reads the time."""

from __future__ import annotations

from time import gmtime, monotonic, strftime, time

__all__ = ["Stamp", "monotonic"]


class Stamp:
    """The wall clock in ISO 8601 to the millisecond, for logs. The part down to the second is made once a second."""

    def __init__(self) -> None:
        self._second = -1
        self._prefix = b""

    def __call__(self) -> bytes:
        now = time()
        second = int(now)
        if second != self._second:
            self._second = second
            self._prefix = strftime("%Y-%m-%dT%H:%M:%S", gmtime(second)).encode()
        return b"%s.%03dZ" % (self._prefix, (now - second) * 1000)
