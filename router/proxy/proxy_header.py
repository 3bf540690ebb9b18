"""The PROXY protocol, versions 1 and 2: a trusted peer's first bytes name the client whose connection it passes on.

Read exactly, so that what follows (a TLS hello, a request) is left on the socket. `read_header` asks for bytes and is
told by whom the connection is; it knows no socket.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import NamedTuple

MARK = b"\r\n\r\n\x00\r\nQUIT\n"  # how version 2 begins
FIRST = b"PROXY "
MOST_LINE = 107  # bytes of a version 1 header
MOST_BLOCK = 2048  # bytes behind a version 2 header's first 16: addresses, and what else a peer says
LOCAL, PROXIED = 0x20, 0x21
TCP4, TCP6, UNIX_STREAM, UNSPECIFIED = 0x11, 0x21, 0x31, 0x00
Read = Callable[[int], Awaitable[bytes]]  # exactly so many bytes


class Origin(NamedTuple):
    """Where a connection comes from; none: the peer speaks for itself."""

    host: str
    port: int


class BadHeader(Exception):
    """No PROXY header, or one that does not hold to its form."""


async def read_header(read: Read) -> Origin | None:
    """Raises BadHeader, and what `read` raises."""
    begin = await read(6)
    if begin == FIRST:
        return _line(await _rest_of_line(read, begin))
    if begin != MARK[:6] or begin + await read(6) != MARK:
        raise BadHeader("the connection does not begin with a PROXY header")
    command, family, high, low = await read(4)
    length = high << 8 | low
    if length > MOST_BLOCK:
        raise BadHeader("the PROXY header is too long")
    return _block(command, family, await read(length))


async def _rest_of_line(read: Read, line: bytes) -> bytes:
    """Byte by byte: nothing of what follows may be taken."""
    while not line.endswith(b"\n"):
        if len(line) == MOST_LINE:
            raise BadHeader("the PROXY header is too long")
        line += await read(1)
    if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
        raise BadHeader("the PROXY header does not end as it should")
    return line[:-2]


def _line(line: bytes) -> Origin | None:
    """Version 1: PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT, or PROXY UNKNOWN and whatever."""
    words = line.split(b" ")
    if words[1] == b"UNKNOWN":
        return None
    try:
        _, family, source, destination, port, other = (word.decode("ascii") for word in words)
        version = {"TCP4": 4, "TCP6": 6}[family]
        if {ip_address(source).version, ip_address(destination).version} != {version}:
            raise ValueError(family)
        return _origin(source, _port(port), _port(other))
    except (ValueError, KeyError) as wrong:
        raise BadHeader("the PROXY header is malformed") from wrong


def _port(text: str) -> int:
    if not text.isdigit() or len(text) > 5 or int(text) > 65_535 or text != str(int(text)):
        raise ValueError(text)
    return int(text)


def _block(command: int, family: int, block: bytes) -> Origin | None:
    """Version 2: what the first 16 bytes say, and the block behind them."""
    if command == LOCAL:
        return None  # the peer's own connection, a health check: whatever else it says is not looked at
    if command != PROXIED or family >> 4 > 3 or family & 15 > 2:
        raise BadHeader("the PROXY header is malformed")
    if family not in (TCP4, TCP6):
        return None  # no address that a client of ours could have
    size = 4 if family == TCP4 else 16
    if len(block) < 2 * size + 4:
        raise BadHeader("the PROXY header is malformed")
    source = ip_address(block[:size])
    return _origin(str(source), int.from_bytes(block[2 * size : 2 * size + 2], "big"), 0)


def _origin(source: str, port: int, _: int) -> Origin:
    address = ip_address(source)
    mapped = address.ipv4_mapped if address.version == 6 else None
    return Origin(str(mapped or address), port)
