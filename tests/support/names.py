"""A name service in one's hand: what names lead to, and how often they were looked up."""

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


class Names:
    """`at[name]` are its addresses, or what looking it up raises; all other names are the system's."""

    def __init__(self) -> None:
        self.at: dict[str, list[str] | Exception] = {}
        self.asked: Counter[str] = Counter()
        self.gate = asyncio.Event()  # clear it, and look-ups hang
        self.gate.set()
        self.most_at_once = self._at_once = 0

    @contextmanager
    def serving(self) -> Iterator["Names"]:
        """All that runs in this loop asks here."""
        loop = asyncio.get_running_loop()
        before = loop.getaddrinfo

        async def getaddrinfo(host: Any, port: Any, **more: Any) -> Any:
            name = host.decode() if isinstance(host, bytes) else host
            if name not in self.at:
                return await before(host, port, **more)
            return await self._answer(name, port)

        with patch.object(loop, "getaddrinfo", getaddrinfo):
            yield self

    async def _answer(self, name: str, port: Any) -> list[Any]:
        self.asked[name] += 1
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await self.gate.wait()
        finally:
            self._at_once -= 1
        found = self.at[name]
        if isinstance(found, Exception):
            raise found
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port or 0)) for address in found]
