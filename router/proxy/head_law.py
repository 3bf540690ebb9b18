"""What llhttp lets pass and this house does not: heads that somebody else on the way may read differently.

llhttp itself refuses conflicting and malformed lengths, folded lines, bare line ends, control bytes and bad names. Left
are the version, the target's fragment, the host, codings besides `chunked`, and names that only look like a framing
header to a server that takes `_` for `-`. Each function says what is wrong, or None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

WATCHED: Final = frozenset((b"host", b"expect", b"transfer-encoding", b"transfer_encoding", b"content_length"))
MOST_FIELDS: Final = 256  # header fields of one request
TARGET: Final = re.compile(rb"/|https?://[^/?#@]+/|\*$", re.IGNORECASE)  # of a request; `*` is OPTIONS' own
HOST: Final = re.compile(rb"[A-Za-z0-9._~%!$&'()*+;=:\[\]-]*")


def field_fault(name: bytes, value: bytes, version: str) -> str | None:
    """Of one of the watched header fields; the name is in lower case."""
    if name == b"host":
        return None if HOST.fullmatch(value) else "Host is not a host's name."
    if name == b"transfer-encoding":
        if value.strip(b" \t").lower() != b"chunked":
            return "No transfer coding but chunked is known here."
        return None if version == "1.1" else "HTTP/1.0 knows no chunks."
    return None if name == b"expect" else "A framing header is misspelt."


def start_fault(version: str, target: bytes, hosts: int) -> str | None:
    """Of a whole head: its version, target, and how often it names a host."""
    if version not in ("1.1", "1.0"):
        return "Only HTTP/1.1 and HTTP/1.0 are spoken here."
    if hosts > 1 or (not hosts and version == "1.1"):
        return "A request needs one Host."
    return "A target has no fragment." if b"#" in target else None


def head_fault(version: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Of a head that another parser has read; names are in lower case."""
    hosts = 0
    for name, value in headers:
        if name in WATCHED:
            hosts += name == b"host"
            fault = field_fault(name, value, version)
            if fault is not None:
                return fault
    return start_fault(version, target, hosts)
