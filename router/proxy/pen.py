"""Writing to a connection: at once what its socket takes, and the rest through its transport.

uvloop gathers what is written and sends it when the loop comes round, which costs another look at all sockets for every
answer; most of what is written here fits into the socket's buffer and can go right away. Only the transport may write
to a TLS connection, or to one for which it still holds something, or bytes would overtake others.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

NONE: Final = -1  # no descriptor to write to
ONE_WRITE: Final = 65_536  # a last piece below this is copied behind the others: one packet, or one TLS record


class Pen:
    """Writes to one connection. `begin` tells that all that was written before has gone, or is in the transport's count
    of what it holds: so it is when a message's answer is written after the message was read."""

    __slots__ = ("_at_once", "_descriptor", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._descriptor = _descriptor(transport)
        self._at_once = False

    def begin(self) -> None:
        self._at_once = self._descriptor != NONE and not self._transport.get_write_buffer_size()

    def write(self, pieces: list[bytes]) -> None:
        """These, in their order. Never blocks and never fails: trouble is the transport's, as ever."""
        if not self._at_once or self._transport.is_closing():
            for piece in pieces if len(pieces[-1]) >= ONE_WRITE else [b"".join(pieces)]:
                self._transport.write(piece)
            return
        try:
            sent = os.writev(self._descriptor, pieces)
        except OSError:  # it takes nothing now, or never will, which the transport finds out
            sent = 0
        for piece in pieces:
            if sent >= len(piece) and self._at_once:
                sent -= len(piece)
                continue
            self._at_once = False
            self._transport.write(memoryview(piece)[sent:] if sent else piece)
            sent = 0


def _descriptor(transport: asyncio.Transport) -> int:
    """The socket's, unless TLS is spoken there."""
    if transport.get_extra_info("sslcontext") is not None:
        return NONE
    socket = transport.get_extra_info("socket")
    return socket.fileno() if socket is not None and hasattr(socket, "fileno") else NONE
