"""What is learned from an answer while it passes: when the first token came, and what usage the worker reported.

The bytes themselves are never touched or delayed. A network read is no line: an event may come one byte at a time or
twenty at once, so events are put together here, within a bound. Once the first token is seen, only the last few
kilobytes are kept: usage stands at the end of a JSON answer and in the last events of a stream.
"""

from __future__ import annotations

import re
from typing import Final

from router.contracts import Dialect, Usage

MOST_HELD: Final = 65_536  # bytes of events without a token that are looked into
TAIL: Final = 16_384
NO_USAGE: Final = Usage(None, None, None)
EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class Meter:
    """Reads one answer. `streaming` is what the answer says it is, not what was asked for."""

    __slots__ = ("_dialect", "_pending", "_size", "_tail", "bytes_out", "coded", "streaming", "token_seen")

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._tail: list[bytes] = []
        self._size = 0
        self._pending = b""
        self.streaming = self.coded = self.token_seen = False
        self.bytes_out = 0

    def begin(self, headers: list[tuple[bytes, bytes]]) -> None:
        """The answer's head: a compressed answer is passed on unread."""
        for name, value in headers:
            if name == b"content-type":
                self.streaming = value.startswith((b"text/event-stream", b"application/x-ndjson"))
            elif name == b"content-encoding":
                self.coded = value.lower() != b"identity"

    def read(self, pieces: list[bytes]) -> bool:
        """Count these bytes. True when they brought a stream's first token."""
        tail = self._tail
        for piece in pieces:
            tail.append(piece)
            self._size += len(piece)
            self.bytes_out += len(piece)
        if self._size > TAIL and len(tail) > 1:
            self._trim()
        if self.token_seen or not self.streaming:
            return False
        return self._look(b"".join(pieces))

    def usage(self) -> Usage:
        """What the worker reported, at the end of its answer."""
        if self.coded:
            return NO_USAGE
        tail = self._tail[0] if len(self._tail) == 1 else b"".join(self._tail)
        return self._dialect.usage(tail if len(tail) <= TAIL else tail[-TAIL:])

    def _trim(self) -> None:
        whole = b"".join(self._tail)[-TAIL // 2 :]
        self._tail = [whole]
        self._size = len(whole)

    def _look(self, data: bytes) -> bool:
        if self.coded:
            self.token_seen = True  # unreadable: the first byte stands for the first token
            return True
        data = self._pending + data
        start = 0
        for end in EVENT_END.finditer(data):
            if self._dialect.has_token(data[start : end.end()]):
                self.token_seen = True
                self._pending = b""
                return True
            start = end.end()
        self._pending = data[start:]
        if len(self._pending) > MOST_HELD:
            self.token_seen = True
            self._pending = b""
            return True
        return False
