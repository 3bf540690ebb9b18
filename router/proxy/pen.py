"""Writing to a connection: at once what its socket takes, and the rest through its transport.

uvloop gathers what is written and sends it when the loop comes round, which costs another look at all sockets for every
answer; most of what is written here fits into the socket's buffer and can go right away. Only the transport may write
to a TLS connection, or to one for which it still holds something, or bytes would overtake others.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

NONE: Final = -1  # no descriptor to write to
ONE_WRITE: Final = 65_536  # a last piece below this is copied behind the others: one packet, or one TLS record


class Pen:
    """Writes to one connection. `begin` is called before each message: only what is written after it may go at once.

    What the transport was handed it counts as held only from the loop's next turn on; until then nothing goes at once.
    """

    __slots__ = ("_at_once", "_descriptor", "_handed", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._descriptor = _descriptor(transport)
        self._at_once = False
        self._handed = False

    def begin(self) -> None:
        self._at_once = self._descriptor != NONE and not self._handed and not self._transport.get_write_buffer_size()

    def write(self, pieces: list[bytes]) -> None:
        """These, in their order. Never blocks and never fails: trouble is the transport's, as ever."""
        if not self._at_once or self._transport.is_closing():
            self._hand(pieces if len(pieces[-1]) >= ONE_WRITE else [b"".join(pieces)])
            return
        try:
            sent = os.writev(self._descriptor, pieces)
        except OSError:  # it takes nothing now, or never will, which the transport finds out
            sent = 0
        for at, piece in enumerate(pieces):
            if sent < len(piece):
                self._hand([memoryview(piece)[sent:] if sent else piece, *pieces[at + 1 :]])
                return
            sent -= len(piece)

    def _hand(self, pieces: Sequence[bytes | memoryview]) -> None:
        self._at_once = False
        if self._descriptor != NONE and not self._handed:
            self._handed = True
            asyncio.get_running_loop().call_soon(self._settle)
        for piece in pieces:
            self._transport.write(piece)

    def _settle(self) -> None:
        """A turn of the loop later."""
        self._handed = False


def _descriptor(transport: asyncio.Transport) -> int:
    """The socket's, unless TLS is spoken there."""
    if transport.get_extra_info("sslcontext") is not None:
        return NONE
    socket = transport.get_extra_info("socket")
    return socket.fileno() if socket is not None and hasattr(socket, "fileno") else NONE
