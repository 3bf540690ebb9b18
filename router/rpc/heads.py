"""Requests' headers, from the frames that they come in to the path that they name."""

from __future__ import annotations

from hpack import Decoder

from router.rpc import frames
from router.rpc.frames import END_HEADERS, END_STREAM, Broken

MOST_BLOCK = 65_536  # bytes of one request's headers
MOST_FRAMES = 64  # that one request's headers come in
MOST_KNOWN = 256  # header blocks whose path is remembered,
MOST_REMEMBERED = 1024  # none longer than so many bytes


class Heads:
    """Of one connection. `open`: a request's headers have begun, and no other frame may come before their end."""

    def __init__(self) -> None:
        self.open = self.ends = False  # ends: the request ends with its headers
        self.number = 0
        self._block, self._frames = b"", 0
        self._decoder = Decoder(MOST_BLOCK)
        self._known: dict[bytes, str] = {}

    def begin(self, flags: int, number: int, payload: bytes) -> bool:
        """A HEADERS frame: whether it is all. Raises Broken."""
        payload = frames.unpadded(payload, flags)
        if flags & frames.PRIORITISED:
            payload = payload[5:]
        if not number % 2:
            raise Broken(frames.PROTOCOL_ERROR, "a stream with a number that no client may give")
        self.ends, self.number, self._block, self._frames = bool(flags & END_STREAM), number, payload, 1
        self.open = not flags & END_HEADERS
        return not self.open

    def go_on(self, flags: int, number: int, payload: bytes) -> bool:
        """A CONTINUATION frame: whether that was all. Raises Broken."""
        if not self.open or self.number != number:
            raise Broken(frames.PROTOCOL_ERROR, "headers go on that did not begin")
        self._block += payload
        self._frames += 1
        if len(self._block) > MOST_BLOCK or self._frames > MOST_FRAMES:
            raise Broken(frames.ENHANCE_YOUR_CALM, "a request's headers are too large")
        self.open = not flags & END_HEADERS
        return not self.open

    def path(self) -> str:
        """The headers must be read even where nobody wants them, unless nothing is remembered of them. Raises
        HPACKError."""
        block, self._block = self._block, b""
        stateless = self._decoder.header_table_size == 0
        known = self._known.get(block) if stateless else None
        if known is None:
            headers = {bytes(name): bytes(value) for name, value in self._decoder.decode(block, raw=True)}
            known = headers.get(b":path", b"").decode("latin-1")
            if stateless and len(block) <= MOST_REMEMBERED and len(self._known) < MOST_KNOWN:
                self._known[block] = known
        return known
