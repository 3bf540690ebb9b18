"""A fast upstream for benchmarks: JSON of 400 bytes, or 64 events of about 200 bytes, one every PACE seconds."""

from __future__ import annotations

import asyncio
import sys

import httptools
import uvloop

ANSWER = (
    b'{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"'
    + b"y" * 180
    + b'"},"finish_reason":"stop"}],"usage":{"prompt_tokens":500,"completion_tokens":64,"total_tokens":564}}'
)
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)
MODELS = b'{"object":"list","data":[{"id":"m","object":"model"}]}'
HEALTH = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(MODELS), MODELS)
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"z" * 150 + b'"}}]}\n\n'
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
EVENTS, PACE = 64, 0.01


class Worker(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.parser = httptools.HttpRequestParser(self)
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.body: list[bytes] = []

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        if self.parser.get_method() == b"GET":
            self.transport.write(HEALTH)
        elif b'"stream":true' in self.body[-1][-100:]:
            self.transport.write(HEAD)
            self.step(EVENTS)
        else:
            self.transport.write(JSON)

    def step(self, left: int) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(CHUNK if left else LAST)
        if left:
            self.loop.call_later(PACE, self.step, left - 1)


async def main(ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Worker, "127.0.0.1", port) for port in ports]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    uvloop.run(main([int(port) for port in sys.argv[1:]]))
