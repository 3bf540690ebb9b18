"""How connections are taken in.

A door is what uvicorn keeps as a server. The plain one is asyncio's own, with limits on TLS: a handshake that is never
finished, and a goodbye that is never answered, would hold a connection and the stop. The sockets are accepted here when
clients must be counted (`crowd.py`), and behind `PROXY` headers: a trusted peer's header is read from the socket before
anybody, TLS included, sees a byte.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from router.core.origin import Origins
from router.proxy.certificates import Certificates, harden
from router.proxy.crowd import Crowd, raise_limit
from router.proxy.proxy_header import BadHeader, Origin, read_header
from router.sections.listen import Listen
from router.settings import Settings

log = logging.getLogger("router")

BACKLOG = 4096  # connections that wait to be taken
GOODBYE_SECONDS = 2.0  # for a TLS client to answer that the connection ends
LOOK_AT_FILES = 2.0  # seconds between two looks at the certificate's files
PAUSE_SECONDS = 0.1  # when no descriptor is left
SPARE, LOOK_SECONDS, SILENT_LOOKS = 16, 1.0, 60  # descriptors that should be free; between two looks, two warnings
REFUSAL = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

Factory = Callable[[], asyncio.Protocol]


class Household(Protocol):
    """What it needs of the house."""

    settings: Settings
    origins: Origins | None


async def open_doors(
    listeners: Iterable[socket.socket],
    factory: Factory,
    tls: ssl.SSLContext | None,
    listen: Listen,
    house: Household,
    connections: Collection[Any] = (),
) -> list[Any]:
    """All that uvicorn is to close in the end. `connections`: those that are there, as uvicorn keeps them."""
    trusted = house.origins if listen.proxy_protocol else None
    crowd = Crowd(connections, raise_limit())
    terms = Terms(tls, house.settings.timeouts.client_read_seconds, trusted, crowd)
    opened: list[Any] = []
    if tls is not None and listen.tls.certificate is not None:
        harden(tls)
        opened.append(Certificates(tls, listen.tls.certificate, listen.tls.key, LOOK_AT_FILES))
    for listener in listeners:
        opened += [await open_door(listener, factory, terms), Headroom(listener)]
    return opened


@dataclass
class Terms:
    """tls: its context; read_seconds: for a PROXY header, and for a TLS handshake; trusted: whose headers are read;
    crowd: who is there already."""

    tls: ssl.SSLContext | None
    read_seconds: float
    trusted: Origins | None = None
    crowd: Crowd | None = None

    def tls_limits(self) -> dict[str, Any]:
        if self.tls is None:
            return {}
        return {"ssl_handshake_timeout": self.read_seconds, "ssl_shutdown_timeout": GOODBYE_SECONDS}


async def open_door(listener: socket.socket, factory: Factory, terms: Terms) -> Any:
    """Take connections from now on."""
    if terms.trusted is not None or (terms.crowd is not None and terms.crowd.most is not None):
        return OwnDoor(listener, factory, terms)
    loop = asyncio.get_running_loop()
    return await loop.create_server(factory, sock=listener, ssl=terms.tls, backlog=BACKLOG, **terms.tls_limits())


class OwnDoor:
    def __init__(self, listener: socket.socket, factory: Factory, terms: Terms) -> None:
        listener.listen(BACKLOG)
        listener.setblocking(False)
        self.sockets = (listener,)
        self._factory, self._terms = factory, terms
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting = self._loop.create_task(self._accept(listener), name="accepts connections")

    def close(self) -> None:
        """As asyncio's own servers, it closes the listener too."""
        for task in (self._accepting, *self._tasks):
            task.cancel()
        self._loop.call_soon(self.sockets[0].close)  # once nobody awaits it any more

    async def wait_closed(self) -> None:
        await asyncio.gather(self._accepting, *self._tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        crowd = self._terms.crowd
        while True:
            if crowd is not None:
                await crowd.place(self._tasks)
            try:
                taken, address = await self._loop.sock_accept(listener)
            except ConnectionError:  # it left while it waited
                continue
            except OSError:
                await asyncio.sleep(PAUSE_SECONDS)  # no descriptor left, which `Headroom` tells
                continue
            task = self._loop.create_task(self._let_in(taken, address[0]), name="a connection begins")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _let_in(self, taken: socket.socket, peer: str) -> None:
        terms = self._terms
        try:
            taken.setblocking(False)
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            origin = None
            if terms.trusted is not None and terms.trusted.trusts(peer):
                async with asyncio.timeout(terms.read_seconds):
                    origin = await read_header(lambda count: self._exactly(taken, count))
            factory = self._factory if origin is None else lambda: coming_from(self._factory(), origin)
            await self._loop.connect_accepted_socket(factory, taken, ssl=terms.tls, **terms.tls_limits())
        except BadHeader as wrong:
            log.warning("a connection from %s: %s", peer, wrong)
            if terms.tls is None:
                _say(taken)
            taken.close()
        except (TimeoutError, OSError):  # it said nothing, left, or did not finish its handshake
            taken.close()
        except asyncio.CancelledError:
            taken.close()
            raise

    async def _exactly(self, taken: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = await self._loop.sock_recv(taken, count - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data


def coming_from(protocol: Any, origin: Origin) -> Any:
    """This protocol of uvicorn's, its client that of the header."""
    made = protocol.connection_made

    def connection_made(transport: asyncio.Transport) -> None:
        made(transport)
        protocol.client = tuple(origin)

    protocol.connection_made = connection_made
    return protocol


def _say(taken: socket.socket) -> None:
    try:
        taken.send(REFUSAL)
        taken.shutdown(socket.SHUT_WR)
    except OSError:
        pass


class Headroom:
    """Tells, now and then, that descriptors run out: the system drops connections then without a word to anybody."""

    def __init__(self, listener: socket.socket) -> None:
        self._descriptor = listener.fileno()
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._loop = asyncio.get_running_loop()
        self._silent = 0  # looks until it may be told again
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def close(self) -> None:
        self._timer.cancel()

    async def wait_closed(self) -> None:
        """At once."""

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
        try:
            lowest = os.dup(self._descriptor)  # the lowest that is free
        except OSError:
            lowest = self._most
        else:
            os.close(lowest)
        self._silent = max(0, self._silent - 1)
        if lowest > self._most - SPARE and not self._silent:
            self._silent = SILENT_LOOKS
            log.error("nearly all of %d descriptors are in use (ulimit -n): new connections are dropped", self._most)
