"""The keep-alive connections to workers, one `Pool` a worker.

There is no limit on connections: how many requests a worker gets is the mind's business. The connection used last is
used first, so that the surplus falls idle and is closed. TLS contexts come from the wiring.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections import deque

import msgspec

from router.proxy.exchange import Connection, Receiver
from router.proxy.sweep import Sweep
from router.types import Worker

MOST_IDLE = 256  # connections kept for reuse a worker


class Limits(msgspec.Struct, frozen=True):
    """Seconds."""

    connect: float = 2.0
    first_byte: float = 600.0
    idle: float = 300.0


class Pool:
    """The connections to one incarnation of a worker. `greeting` is what every request's head says to it."""

    def __init__(self, worker: Worker, sweep: Sweep, limits: Limits, tls: ssl.SSLContext | None = None) -> None:
        address = self.address = worker.address
        self.base_path = address.base_path.encode()
        credentials = _credentials(worker)
        self.has_credentials = bool(credentials)
        self.greeting = b" HTTP/1.1\r\nhost: %s\r\n%s" % (address.netloc.encode(), credentials)
        self.sweep = sweep
        self.limits = limits
        self.tls = tls if address.scheme == "https" else None
        self.loop = asyncio.get_running_loop()
        self._idle: deque[Connection] = deque()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Pool {self.address.netloc}, {self.busy()} busy, {len(self._idle)} idle>"

    def send(self, head: bytes, body: bytes, receiver: Receiver, now: float, *, fresh: bool = False) -> Connection:
        """Send a request on an idle connection, the one used last, or on a new one."""
        connection = self._idle.pop() if self._idle and not fresh else Connection(self)
        connection.send(head, body, receiver, now)
        return connection

    def busy(self) -> int:
        """Connections with an exchange under way."""
        return sum(1 for each in self.sweep if isinstance(each, Connection) and each.pool is self and each.busy)

    def keep(self, connection: Connection) -> None:
        if self._closed or len(self._idle) >= MOST_IDLE:
            connection.cancel()
        else:
            self._idle.append(connection)

    def drop(self, connection: Connection) -> None:
        """It is closed, or about to be."""
        self.sweep.forget(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close what is idle now and the rest as it ends: streams on a removed worker finish."""
        self._closed = True
        for connection in list(self._idle):
            connection.cancel()


def _credentials(worker: Worker) -> bytes:
    """The worker's own `Authorization` line: its key, or what its URL carries."""
    if worker.api_key:
        return b"authorization: Bearer %s\r\n" % worker.api_key.encode()
    if worker.address.credentials:
        return b"authorization: Basic %s\r\n" % b64encode(worker.address.credentials.encode())
    return b""
