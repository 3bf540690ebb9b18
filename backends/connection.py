"""One client connection: bytes to requests, one answer at a time, in order.

Requests that arrive while one is being answered wait their turn (pipelining). Reading goes on meanwhile, because only a
reading connection notices that its client went; a client that sends too far ahead is paused. A client that closes its
sending side counts as gone, as it does for the usual Python servers.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

import httptools

from backends.http import Answer, Request, head_bytes
from backends.reply import Reply
from backends.wire import JSON_TYPE, ApiError, encode

BODY_LIMIT = 256 * 1024 * 1024
AHEAD_LIMIT = 64
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

App = Callable[[Request, Answer], None]


class Connection(asyncio.Protocol):
    """Calls `app(request, answer)` for each request; the app answers at once or later, by callbacks."""

    def __init__(self, app: App, everyone: "set[Connection]", body_limit: int = BODY_LIMIT) -> None:
        self._app = app
        self._everyone = everyone
        self._body_limit = body_limit
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Request] = deque()
        self._reply: Reply | None = None
        self._closing = False
        self._bad: int | None = None  # the status for what came after the last good request
        self._expecting = False
        self._starting = False
        self.lost = asyncio.Event()
        self.quiet_since = asyncio.get_running_loop().time()
        self._forget()

    @property
    def idle(self) -> bool:
        """Open, with no request being read, answered or waiting."""
        return self._reply is None and not self._queue and not self._starting

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it
        self._everyone.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._everyone.discard(self)
        self.lost.set()
        self._closing = True
        self._queue.clear()
        if self._reply is not None:
            self._reply.gone()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._closing = True  # no protocol to switch to: the request was taken as a plain one, and is the last
        except httptools.HttpParserError:
            self._closing, self._bad = True, self._bad or 400
        self._next()

    # What the parser calls, in the order of a request.

    def on_message_begin(self) -> None:
        self._starting = True
        self._forget()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))
        if name.lower() == b"expect" and value.lower() == b"100-continue":
            self._expecting = True

    def on_headers_complete(self) -> None:
        if self._expecting and self._reply is None and not self._queue:
            self._transport.write(CONTINUE)
            self._expecting = False

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size <= self._body_limit:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._starting = self._expecting = False
        if self._bad is not None:
            return  # nothing after a bad request is answered: the answers would be taken for those of others
        if self._size > self._body_limit:
            self._closing, self._bad = True, 413
            return
        keep = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        method = self._parser.get_method().decode("latin-1")
        target, version = self._target.decode("latin-1"), self._parser.get_http_version()
        self._queue.append(Request(method, target, version, tuple(self._headers), b"".join(self._body), keep))
        self._forget()
        if len(self._queue) > AHEAD_LIMIT:
            self._transport.pause_reading()

    def _forget(self) -> None:
        self._target = b""
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._size = 0

    def _next(self) -> None:
        """Hands the next waiting request to the app. A loop, not a recursion: answers may come at once."""
        while self._reply is None and self._queue and not self._transport.is_closing():
            request = self._queue.popleft()
            reply = self._reply = Reply(self._transport, request, self._answered)
            self._app(request, reply)
        if self._bad is not None and self._reply is None and not self._transport.is_closing():
            self._transport.write(refusal(self._bad, self._body_limit))
            self._transport.close()

    def _answered(self, complete: bool) -> None:
        self._reply = None
        self.quiet_since = asyncio.get_running_loop().time()
        if not complete or self._transport.is_closing():
            return
        if self._expecting and not self._queue:
            self._expecting = False
            self._transport.write(CONTINUE)
        if self._queue or self._bad is not None:
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._next)


def refusal(status: int, body_limit: int) -> bytes:
    """The answer to something that is no request; the connection ends with it."""
    too_large = f"The request is too large: its body may have {body_limit} bytes."
    error = ApiError(status, "The request is not valid HTTP." if status == 400 else too_large)
    body = encode(error.openai())
    return head_bytes(status, [*JSON_TYPE, ("content-length", str(len(body))), ("connection", "close")]) + body
