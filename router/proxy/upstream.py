"""The keep-alive connections to workers, one `Pool` a worker.

How many requests a worker gets is the mind's business. Where the number of its connections is limited, further requests
wait for one in the order they came; one that waits has been sent nowhere yet, so no limit on the worker runs. The
connection used last is used first, so that the surplus falls idle and is closed. TLS contexts come from the wiring.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from router.errors import NotSent
from router.proxy.exchange import Connection, Receiver
from router.proxy.resolve import Resolver
from router.proxy.sweep import Sweep, Watched
from router.types import Worker

MOST_IDLE: Final = 256  # connections kept for reuse a worker


class Limits(msgspec.Struct, frozen=True):
    """Seconds; `connections`: open ones at most, where the worker itself has no such limit."""

    connect: float = 2.0
    first_byte: float = 600.0
    idle: float = 300.0
    connections: int | None = None


class Waiting:
    """A request that waits for one of the worker's connections."""

    __slots__ = ("_body", "_head", "_pool", "fresh", "receiver")

    is_open = False

    def __init__(self, pool: Pool, head: bytes, body: bytes, receiver: Receiver, *, fresh: bool) -> None:
        self._pool, self._head, self._body, self.receiver, self.fresh = pool, head, body, receiver, fresh

    def cancel(self) -> None:
        self._pool.waiting.pop(self, None)

    def pause(self) -> None:
        """Nothing comes that could be held back."""

    def resume(self) -> None:
        """Nothing was held back."""

    def go(self, connection: Connection, now: float) -> None:
        self.receiver.connection = connection
        connection.send(self._head, self._body, self.receiver, now)


class Pool:
    """The connections to one incarnation of a worker. `greeting` is what every request's head says to it.

    reads: how often something came from the worker
    beat: what looks at the worker from time to time while it has connections
    """

    def __init__(
        self,
        worker: Worker,
        sweep: Sweep,
        limits: Limits,
        tls: ssl.SSLContext | None = None,
        *,
        names: Resolver | None = None,
        beat: Watched | None = None,
    ) -> None:
        address = self.address = worker.address
        self.base_path = address.base_path.encode()
        credentials = _credentials(worker)
        self.has_credentials = bool(credentials)
        self.greeting = b" HTTP/1.1\r\nhost: %s\r\n%s" % (address.netloc.encode(), credentials)
        self.sweep = sweep
        self.tls = tls if address.scheme == "https" else None
        self.loop = asyncio.get_running_loop()
        self.name = names.name(address.host) if names is not None else None
        if self.name is not None:
            self.name.listen(self._moved)
        self.reads = 0
        self.waiting: dict[Waiting, None] = {}
        self._beat = beat
        self._own_most = worker.max_connections
        self._open: dict[Connection, None] = {}
        self._idle: deque[Connection] = deque()
        self._closed = False
        self.go_by(limits)

    def __repr__(self) -> str:
        waiting = f", {len(self.waiting)} waiting" if self.waiting else ""
        return f"<Pool {self.address.netloc}, {self.busy()} busy, {len(self._idle)} idle{waiting}>"

    def go_by(self, limits: Limits) -> None:
        """From now on."""
        self.limits = limits
        self.most = self._own_most or limits.connections
        self._admit()

    def send(
        self, head: bytes, body: bytes, receiver: Receiver, now: float, *, fresh: bool = False
    ) -> Connection | Waiting:
        """Send a request on an idle connection, the one used last, or on a new one; or let it wait for one."""
        if self.most is not None and self._is_full(fresh=fresh):
            waiting = Waiting(self, head, body, receiver, fresh=fresh)
            self.waiting[waiting] = None
            return waiting
        connection = self._idle.pop() if self._idle and not fresh else Connection(self)
        connection.send(head, body, receiver, now)
        return connection

    def busy(self) -> int:
        """Connections with an exchange under way."""
        return sum(each.busy for each in self._open)

    def unanswered(self) -> list[tuple[float, Receiver]]:
        """Who awaits something of the worker, and since when; a client that reads slowly does not."""
        return [
            (each.sent_at, each.receiver)
            for each in self._open
            if each.receiver is not None and each.is_open and not each.paused
        ]

    def turn_away(self, who: Callable[[Receiver], bool] = lambda _: True) -> None:
        """Those that wait for a connection need not: the worker is not well, and they were sent nowhere."""
        for each in [waiting for waiting in self.waiting if who(waiting.receiver)]:
            if self.waiting.pop(each, self) is not self:
                each.receiver.on_failure(NotSent("the worker is not well"))

    def close(self) -> None:
        """Close what is idle now and the rest as it ends: streams on a removed worker finish."""
        self._closed = True
        if self.name is not None:
            self.name.unlisten(self._moved)
        for connection in list(self._idle):
            connection.cancel()

    # The connections' side.

    def opened(self, connection: Connection) -> None:
        """It takes one of the places until its socket is closed."""
        self._open[connection] = None
        self.sweep.watch(connection)
        if self._beat is not None:
            self.sweep.watch(self._beat)

    def keep(self, connection: Connection) -> None:
        moved = self.name is not None and connection.peer not in self.name.addresses
        if self._closed or moved or (len(self._idle) >= MOST_IDLE and not self.waiting):
            connection.cancel()
        else:
            self._idle.append(connection)
            if self.waiting:
                self._admit()

    def drop(self, connection: Connection) -> None:
        """It is closed, or about to be."""
        self.sweep.forget(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def closed(self, connection: Connection) -> None:
        """Its socket is closed, or never came about: its place is free. May be told twice."""
        if self._open.pop(connection, connection) is None and self.waiting:
            self._admit()

    # Who waits.

    def _is_full(self, *, fresh: bool) -> bool:
        if self._idle and not fresh:
            return False
        if self.most is None or len(self._open) < self.most:
            return False
        if self._idle:  # a new one is wanted: one that is not in use makes room
            self._idle[0].cancel()
        return True

    def _admit(self) -> None:
        """Those that wait take what is free, the first that came first."""
        while self.waiting:
            waiting = next(iter(self.waiting))
            if self._is_full(fresh=waiting.fresh):
                return
            del self.waiting[waiting]
            fresh = waiting.fresh or not self._idle
            waiting.go(Connection(self) if fresh else self._idle.pop(), self.sweep.clock())

    def _moved(self) -> None:
        """The worker's name has other addresses now: those that are gone are not used again."""
        for connection in [each for each in self._idle if self.name and each.peer not in self.name.addresses]:
            connection.cancel()


def _credentials(worker: Worker) -> bytes:
    """The worker's own `Authorization` line: its key, or what its URL carries."""
    if worker.api_key:
        return b"authorization: Bearer %s\r\n" % worker.api_key.encode()
    if worker.address.credentials:
        return b"authorization: Basic %s\r\n" % b64encode(worker.address.credentials.encode())
    return b""
