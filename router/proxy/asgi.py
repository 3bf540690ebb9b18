"""The same journey behind plain ASGI: for pipelined requests, other servers, and when the fast lane's check fails.

One task watches the client, one sends. Back-pressure is the server's `send`: while it waits, what the worker sends
gathers here up to a bound, and then the worker is paused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from math import inf
from typing import Any

from router.contracts import Place, Story, Teller
from router.proxy.headers import Headers
from router.proxy.sweep import PATIENCE, SLOWEST, ClientLimits

Message = MutableMapping[str, Any]
HIGH_WATER = 65_536  # bytes waiting for a slow client before its worker is paused


class AsgiSink:
    def __init__(self, peer: str = "") -> None:
        self.peer = peer
        self.story: Story
        self._out: deque[Message] = deque()
        self._ready = asyncio.Event()
        self._size = 0
        self.paused = False
        self.over = self.cut = False

    def head(self, status: int, headers: Headers, length: int | None) -> None:
        if length is not None and status not in (204, 304):
            headers = [*headers, (b"content-length", b"%d" % length)]
        self._put({"type": "http.response.start", "status": status, "headers": headers})

    def body(self, data: bytes) -> None:
        self._size += len(data)
        self._put({"type": "http.response.body", "body": data, "more_body": True})
        if self._size > HIGH_WATER and not self.paused:
            self.paused = True
            self.story.pause()

    def flush(self) -> None:
        self._ready.set()

    def end(self) -> None:
        self._put({"type": "http.response.body", "body": b"", "more_body": False})
        self.over = True
        self._ready.set()

    def abort(self) -> None:
        self.over = self.cut = True
        self._ready.set()

    def _put(self, message: Message) -> None:
        if not self.over:
            self._out.append(message)

    async def drain(self, send: Callable[[Message], Awaitable[None]], seconds: float = inf) -> None:
        """Send all there is, until the answer is over or cut; a client that takes nothing for so long is left."""
        while True:
            while self._out:
                message = self._out.popleft()
                self._size -= len(message.get("body", b""))
                try:
                    async with asyncio.timeout(None if seconds == inf else seconds):
                        await send(message)
                except TimeoutError:
                    self.over = self.cut = True
                    self._out.clear()
            if self.paused:
                self.paused = False
                self.story.resume()
            if self.over:
                return
            await self._ready.wait()
            self._ready.clear()


class AsgiEndpoint:
    """An ASGI application for the proxied paths."""

    def __init__(self, teller: Teller, place: Place, limits: ClientLimits) -> None:
        self.teller = teller
        self.place = place
        self.limits = limits

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        sink = AsgiSink((scope.get("client") or ("",))[0])
        target = scope.get("raw_path") or scope["path"].encode()
        if scope.get("query_string"):
            target += b"?" + scope["query_string"]
        headers = [(name.lower(), value) for name, value in scope["headers"]]
        story = sink.story = self.teller.open(self.place, target, headers, sink)
        story.begin(headers)
        watcher = asyncio.create_task(self._watch(sink, story, receive))
        try:
            await sink.drain(send, self.limits.write_seconds)
        finally:
            watcher.cancel()
            story.cancel()

    async def _watch(self, sink: AsgiSink, story: Story, receive: Callable[[], Awaitable[Message]]) -> None:
        """The request's body, then the client's leaving."""
        more, size = True, 0
        seconds, clock = self.limits.read_seconds, asyncio.get_running_loop().time
        began = clock()
        while more and not sink.over:
            try:
                async with asyncio.timeout(seconds):
                    message = await receive()
            except TimeoutError:
                story.late()
                return
            if message["type"] == "http.disconnect":
                self._leave(sink, story)
                return
            story.feed(message.get("body", b""))
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
            if more and clock() - began > seconds * PATIENCE + size / SLOWEST:
                story.late()
                return
        story.complete()
        while (await receive())["type"] != "http.disconnect":
            pass
        self._leave(sink, story)

    @staticmethod
    def _leave(sink: AsgiSink, story: Story) -> None:
        story.cancel()
        sink.abort()
