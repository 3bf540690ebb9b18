"""A connection to a worker comes about: by its address, or by its name's addresses in turn.

When all that are known refuse, the name is looked up afresh and what is new is tried too, within the same limit: a
worker that moved is found by the first request that misses it. Proxy variables mean nothing here.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, cast

from router.errors import AttemptError, ConnectTimeout, LocalTrouble, Unreachable

if TYPE_CHECKING:
    from router.proxy.exchange import Connection
    from router.proxy.upstream import Pool

OWN_TROUBLE = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))


async def dial(pool: Pool, connection: Connection) -> None:
    """Connect it, or tell it why not. The limit on the whole is the sweep's to watch."""
    try:
        if pool.name is None:
            await _open(pool, connection, pool.address.host)
        else:
            await _by_name(pool, connection)
    except asyncio.CancelledError:  # its time is up, or nobody wants it any more: perhaps the worker is elsewhere now
        pool.closed(connection)  # uvloop tells of no end where this falls between the connection's being made and here
        if pool.name is not None:
            pool.name.look_up()
        raise
    except (OSError, UnicodeError) as wrong:  # a name too long for DNS is a UnicodeError
        connection.not_connected(_failure(pool, wrong))


async def _by_name(pool: Pool, connection: Connection) -> None:
    name = pool.name
    assert name is not None
    tried: set[str] = set()
    wrong: Exception | None = None
    for again in (False, True):
        if again:
            await name.fresh()
        addresses = [address for address in await name.known() if address not in tried]
        for address in addresses:
            tried.add(address)
            connection.peer = address
            try:
                async with asyncio.timeout(pool.limits.connect / len(addresses)):
                    await _open(pool, connection, address)
            except OSError as failed:  # a timeout is one too
                wrong = failed
                if connection.is_open:  # its time was up just when it came about, and the request may be on its way
                    connection.connection_lost(failed)
                    return
                if failed.errno in OWN_TROUBLE:
                    raise
            else:
                name.preferred = address
                return
    assert wrong is not None
    raise wrong


async def _open(pool: Pool, connection: Connection, host: str) -> None:
    """The worker's certificate must be for its name, whichever address it was found at."""
    at, tls = pool.address, pool.tls
    name = at.host if tls else None
    protocol = cast(asyncio.Protocol, connection)  # by its methods
    await pool.loop.create_connection(lambda: protocol, host, at.port, ssl=tls, server_hostname=name)


def _failure(pool: Pool, wrong: Exception) -> AttemptError:
    if isinstance(wrong, TimeoutError) and wrong.errno is None:
        return ConnectTimeout(f"no connection within {pool.limits.connect:g} s")
    kind = LocalTrouble if getattr(wrong, "errno", None) in OWN_TROUBLE else Unreachable
    return kind(type(wrong).__name__)
