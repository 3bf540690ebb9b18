"""The border in front of the app: what the fast lane does by itself, for what does not pass through it.

A bad head is refused (uvicorn's parser has refused most), the client's address is put in its place, and browsers are
told what they may.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from router.core.origin import Origins
from router.errors import HeadersTooLarge, InvalidRequest, Refusal
from router.events import Event, Finished
from router.proxy.asgi import Message
from router.proxy.cors import Cors
from router.proxy.head_law import MOST_FIELDS, head_fault
from router.proxy.headers import Headers, request_id

PEER = "router.peer"  # in the scope: who is connected, where `client` is whom it speaks for
CLOSED = "handler is closed"  # uvloop's word for a client that left, which uvicorn does not know
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Owner(Protocol):
    """What it needs of the house."""

    origins: Origins | None
    cors: Cors | None
    most_header_bytes: int
    emit: Callable[[Event], None]

    @property
    def paths(self) -> Any: ...


class Border:
    """An ASGI application around another. `open_to_pages`: further paths that pages may call."""

    def __init__(
        self, app: Any, house: Owner, refusal: Callable[[Refusal], tuple[bytes, bytes]], open_to_pages: tuple[str, ...]
    ) -> None:
        self.app, self.house, self.refusal = app, house, refusal
        self.open_to_pages = frozenset(path.encode() for path in open_to_pages)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = [(name.lower(), value) for name, value in scope["headers"]]
        refused = self._refused(scope, headers)
        if refused is not None:
            await self._send_away(refused, (scope.get("client") or ("",))[0], send)
            return
        house = self.house
        if house.origins is not None and scope.get("client"):
            peer, port = scope["client"]
            client = house.origins.client_of(peer, headers)
            scope[PEER] = peer
            scope["client"] = (client, port if client == peer else 0)
        path = scope["path"].encode("utf-8", "surrogateescape")
        if house.cors is not None and (path in house.paths or path in self.open_to_pages):
            await self._for_pages(house.cors, headers, scope, receive, send)
        else:
            await self._pass(scope, receive, send)

    async def _pass(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            await self.app(scope, receive, send)
        except RuntimeError as wrong:
            if CLOSED not in str(wrong):
                raise

    def _refused(self, scope: Message, headers: Headers) -> Refusal | None:
        fault = head_fault(scope["http_version"], b"", headers)
        if fault is not None:
            return InvalidRequest(fault)
        most = self.house.most_header_bytes
        if len(headers) > MOST_FIELDS or sum(len(name) + len(value) + 4 for name, value in headers) > most:
            return HeadersTooLarge(f"The headers are more than {MOST_FIELDS}, or larger than {most} bytes.")
        return None

    async def _send_away(self, refused: Refusal, peer: str, send: Send) -> None:
        own_id = request_id(None)
        self.house.emit(Finished(own_id, "other", "", refused.status, refused.code, client=peer))
        content_type, body = self.refusal(refused)
        head = [
            (b"content-type", content_type), (b"content-length", b"%d" % len(body)), (b"connection", b"close"),
            (b"x-request-id", own_id.encode()),
        ]  # fmt: skip
        await send({"type": "http.response.start", "status": refused.status, "headers": head})
        await send({"type": "http.response.body", "body": body})

    async def _for_pages(self, cors: Cors, headers: Headers, scope: Message, receive: Receive, send: Send) -> None:
        said = cors.preflight(headers) if scope["method"] == "OPTIONS" else None
        if said is not None:
            await send({"type": "http.response.start", "status": 204, "headers": said})
            await send({"type": "http.response.body", "body": b""})
            return
        said = cors.headers(headers)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message.get("headers", ())
                message["headers"] = [*given, *(each for each in said if each not in given)]
            await send(message)

        await self._pass(scope, receive, sending)
