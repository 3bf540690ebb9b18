"""The names of workers, looked up by the gateway itself, so that a worker that moved is followed.

A name is looked up again every `seconds`, and at once when a connection to it failed; one look-up a name at a time, in
the background. While none succeeds the old addresses are kept: the name service is gone more often than the workers.
What is an IP address has no name and costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from ipaddress import ip_address

log = logging.getLogger("router")

JUST_NOW = 0.25  # seconds; what was looked up within them need not be looked up again


class Name:
    """One name and the addresses it has now; `version` counts their changes.

    preferred: the address that the last connection came about with
    """

    def __init__(self, host: str, resolver: Resolver) -> None:
        self.host = host
        self.addresses: tuple[str, ...] = ()
        self.version = 0
        self.preferred: str | None = None
        self._resolver = resolver
        self._listeners: dict[Callable[[], None], None] = {}
        self._wrong: Exception | None = None
        self._looked_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._kept = True
        self._closed = False

    def __repr__(self) -> str:
        return f"<Name {self.host} at {', '.join(self.addresses) or 'no address yet'}>"

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this whenever the addresses have changed."""
        self._listeners[listener] = None

    def unlisten(self, listener: Callable[[], None]) -> None:
        self._listeners.pop(listener, None)

    async def known(self) -> list[str]:
        """The addresses, the one that served last first. Waits only while none was ever found; OSError for none."""
        if not self.addresses:
            await self.fresh()
        if not self.addresses:
            raise self._wrong or OSError("the name has no address")
        return sorted(self.addresses, key=lambda address: address != self.preferred)

    async def fresh(self) -> None:
        """Wait for a look-up that began just now, the one under way, or a new one."""
        task = self.look_up()
        if task is not None:
            await asyncio.shield(task)  # the one that waits may be cancelled; the look-up is everybody's

    def look_up(self) -> asyncio.Task[None] | None:
        """Begin a look-up unless one is under way or was over just now."""
        now = self._resolver.clock()
        if self._looked_at is None or now - self._looked_at >= JUST_NOW:
            self._begin()
        return self._task

    def _begin(self) -> None:
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._look(), name=f"look up {self.host}")

    def end(self) -> None:
        """Nobody will ask regularly any more."""
        self._kept = False
        self._listeners.clear()
        if self._timer is not None:
            self._timer.cancel()

    def cancel(self) -> None:
        self.end()
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self.host, None, type=socket.SOCK_STREAM)
            self._learn(tuple(dict.fromkeys(str(info[4][0]) for info in found)))
        except (OSError, UnicodeError) as wrong:  # a name too long for DNS is a UnicodeError
            self._wrong = wrong
        finally:
            self._task = None
            self._looked_at = self._resolver.clock()
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(self._resolver.seconds, self._begin) if self._kept else None

    def _learn(self, found: tuple[str, ...]) -> None:
        before = self.addresses
        if not found or set(found) == set(before):
            return  # their order alone means nothing
        self.addresses = found
        self.version += 1
        if before:
            log.warning("%s moved from %s to %s", self.host, ", ".join(before), ", ".join(found))
            for listener in list(self._listeners):
                listener()
            self._resolver.moved(self, frozenset(before) - frozenset(found))


class Resolver:
    """The names that are in use. `moved` is told of a name whose addresses changed, and of those that are gone."""

    def __init__(
        self,
        clock: Callable[[], float],
        seconds: float,
        moved: Callable[[Name, frozenset[str]], None] = lambda _, __: None,
    ) -> None:
        self.clock = clock
        self.seconds = seconds
        self.moved = moved
        self._names: dict[str, Name] = {}

    def __len__(self) -> int:
        return len(self._names)

    def name(self, host: str) -> Name | None:
        """The name to follow; None where it is an address itself."""
        if is_address(host):
            return None
        name = self._names.get(host)
        if name is None:
            name = self._names[host] = Name(host, self)
            name.look_up()
        return name

    def keep(self, hosts: Iterable[str]) -> None:
        """Only these are in use."""
        wanted = set(hosts)
        for host in [host for host in self._names if host not in wanted]:
            self._names.pop(host).end()

    def close(self) -> None:
        for name in self._names.values():
            name.cancel()
        self._names = {}


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
