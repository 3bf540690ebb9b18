"""The same journey behind plain ASGI: for pipelined requests, other servers, and when the fast lane's check fails.

One task watches the client, one sends. Back-pressure is the server's `send`: while it waits, what the worker sends
gathers here up to a bound, and then the worker is paused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from router.contracts import Place, Story, Teller
from router.proxy.headers import Headers

Message = MutableMapping[str, Any]
HIGH_WATER = 65_536  # bytes waiting for a slow client before its worker is paused


class AsgiSink:
    def __init__(self, peer: str = "") -> None:
        self.peer = peer
        self.story: Story
        self._out: deque[Message] = deque()
        self._ready = asyncio.Event()
        self._size = 0
        self._paused = False
        self.over = self.cut = False

    def head(self, status: int, headers: Headers, length: int | None) -> None:
        if length is not None and status not in (204, 304):
            headers = [*headers, (b"content-length", b"%d" % length)]
        self._put({"type": "http.response.start", "status": status, "headers": headers})

    def body(self, data: bytes) -> None:
        self._size += len(data)
        self._put({"type": "http.response.body", "body": data, "more_body": True})
        if self._size > HIGH_WATER and not self._paused:
            self._paused = True
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

    async def drain(self, send: Callable[[Message], Awaitable[None]]) -> None:
        """Send all there is, until the answer is over or cut."""
        while True:
            while self._out:
                message = self._out.popleft()
                self._size -= len(message.get("body", b""))
                await send(message)
            if self._paused:
                self._paused = False
                self.story.resume()
            if self.over:
                return
            await self._ready.wait()
            self._ready.clear()


class AsgiEndpoint:
    """An ASGI application for the proxied paths."""

    def __init__(self, teller: Teller, place: Place, read_seconds: float) -> None:
        self.teller = teller
        self.place = place
        self.read_seconds = read_seconds

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
            await sink.drain(send)
        finally:
            watcher.cancel()
            story.cancel()

    async def _watch(self, sink: AsgiSink, story: Story, receive: Callable[[], Awaitable[Message]]) -> None:
        """The request's body, then the client's leaving."""
        more = True
        while more and not sink.over:
            try:
                async with asyncio.timeout(self.read_seconds):
                    message = await receive()
            except TimeoutError:
                story.late()
                return
            if message["type"] == "http.disconnect":
                self._leave(sink, story)
                return
            story.feed(message.get("body", b""))
            more = message.get("more_body", False)
        story.complete()
        while (await receive())["type"] != "http.disconnect":
            pass
        self._leave(sink, story)

    @staticmethod
    def _leave(sink: AsgiSink, story: Story) -> None:
        story.cancel()
        sink.abort()
