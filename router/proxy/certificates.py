"""TLS for clients: one context, whose certificate and key are read again when their files change.

A new pair counts for the handshakes that come; connections stay as they are. A pair that does not fit together, or that
cannot be read, changes nothing, and is told once: files are seldom replaced both at the same instant.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from typing import Any

from router.proxy.worker_tls import reason

log = logging.getLogger("router")


def context(certificate: str, key: str | None) -> ssl.SSLContext:
    """For a listening socket. Raises OSError and ssl.SSLError."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    harden(made)
    made.load_cert_chain(certificate, key, password="")  # none: asking for one would hang
    return made


def harden(tls: ssl.SSLContext) -> None:
    """TLS 1.2 at least, no renegotiation, and HTTP/1.1 where a client asks what is spoken."""
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    tls.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    tls.set_alpn_protocols(["http/1.1"])


class Certificates:
    """Watches the two files until it is closed, as servers are."""

    def __init__(self, tls: ssl.SSLContext, certificate: str, key: str | None, every: float) -> None:
        self._tls, self._certificate, self._key, self._every = tls, certificate, key, every
        self._seen = self._look()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(every, self.look)

    def close(self) -> None:
        self._timer.cancel()

    async def wait_closed(self) -> None:
        """At once."""

    def look(self) -> None:
        """Are they still the same?"""
        self._timer = self._loop.call_later(self._every, self.look)
        found = self._look()
        if found != self._seen:
            self._seen = found
            self._renew()

    def _look(self) -> tuple[Any, ...]:
        """What tells changed files from the same ones, also where a link leads elsewhere now."""
        return tuple(_signature(path) for path in (self._certificate, self._key) if path is not None)

    def _renew(self) -> None:
        try:
            context(self._certificate, self._key)  # a try: the one in use is not to be left with half a pair
            self._tls.load_cert_chain(self._certificate, self._key, password="")
        except (OSError, ssl.SSLError) as wrong:
            log.error("the new certificate is not taken, the old one stays: %s", reason(wrong))
        else:
            log.info("a new certificate counts from now on: %s", self._certificate)


def _signature(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
