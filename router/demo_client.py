"""The demo's client: one streaming chat a connection, on httptools.

A general HTTP client spends a millisecond or two of CPU a request and more on every event; on a small machine that
shares its cores with the workers and the gateway, that would be measured instead of the policies.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import httptools
import msgspec

from router.clock import monotonic

PATIENCE = 30.0  # seconds for one whole answer; nothing in the demo takes that long unless something hangs


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta


class Details(msgspec.Struct):
    cached_tokens: int = 0


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: Details | None = None


class Chunk(msgspec.Struct):
    choices: list[Choice] = []
    usage: Usage | None = None


_read_chunk = msgspec.json.Decoder(Chunk).decode


class Answer(msgspec.Struct):
    """What came of one request; `error` says why it is none. Times are seconds on the monotonic clock."""

    began: float
    ended: float = 0.0
    ttft: float | None = None
    worker: str | None = None
    text: str = ""
    usage: Usage | None = None
    error: str | None = None


async def chat(host: str, port: int, messages: Sequence[dict[str, str]], max_tokens: int) -> Answer:
    """Ask and read to the end. Never raises for what the gateway does; the clock starts before the connection does."""
    body = json.dumps(
        {"model": "mock-model", "messages": list(messages), "max_tokens": max_tokens, "stream": True,
         "stream_options": {"include_usage": True}}
    ).encode()  # fmt: skip
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    answer = Answer(began=monotonic())
    exchange = Exchange(head.encode() + body, answer, monotonic)
    transport: asyncio.Transport | None = None
    try:
        async with asyncio.timeout(PATIENCE):
            transport, _ = await asyncio.get_running_loop().create_connection(lambda: exchange, host, port)
            await exchange.over
    except TimeoutError:
        answer.error = f"no complete answer within {PATIENCE:g} s"
    except OSError as wrong:
        answer.error = wrong.strerror or type(wrong).__name__
    finally:
        if transport is not None:
            transport.abort()
    answer.ended = monotonic()
    return answer


class Exchange(asyncio.Protocol):
    """Writes one request, fills in its answer. `over` is done when no more will come."""

    def __init__(self, request: bytes, answer: Answer, clock: Callable[[], float]) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._answer = answer
        self._clock = clock
        self._parser = httptools.HttpResponseParser(self)
        self._rest = b""
        self._texts: list[str] = []
        self._complete = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, msgspec.MsgspecError, ValueError) as wrong:
            self._end(f"the answer could not be read: {wrong.__context__ or wrong}")

    def connection_lost(self, wrong: Exception | None) -> None:
        self._end("the connection was cut")

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-router-worker":
            self._answer.worker = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        if self._parser.get_status_code() != 200:
            self._rest += body
            return
        *events, self._rest = (self._rest + body).split(b"\n\n")
        for event in events:
            if event == b"data: [DONE]":
                self._complete = True
            elif event.startswith(b"data: "):
                self._take(_read_chunk(event[6:]))

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status != 200:
            self._end(f"status {status}: {_reason(self._rest)}")
        else:
            self._end(None if self._complete else "the stream ended early")

    def _take(self, chunk: Chunk) -> None:
        if chunk.usage is not None:
            self._answer.usage = chunk.usage
        for choice in chunk.choices:
            if choice.delta.content:
                if self._answer.ttft is None:
                    self._answer.ttft = self._clock() - self._answer.began
                self._texts.append(choice.delta.content)

    def _end(self, error: str | None) -> None:
        if not self.over.done():
            self._answer.error = error
            self._answer.text = "".join(self._texts)
            self.over.set_result(None)


def _reason(body: bytes) -> str:
    try:
        said: Any = json.loads(body)
        return str(said["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")
