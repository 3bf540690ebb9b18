"""A load generator for benchmarks: N connections, each sending its next request as the last one is answered, or no more
than a fixed number of requests a second over all of them."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time

import httptools
import uvloop

SESSIONS = 64


def body(session: int, size: int, *, stream: bool) -> bytes:
    """A chat of about `size` bytes with its own system text and history."""
    system = f"You are assistant number {session}. " + f"Follow the rules of house {session}. " * 15
    turns = [{"role": "system", "content": system}]
    left = size - len(system) - 200
    while left > 0:
        text = f"turn {len(turns)} of session {session}: " + 'the quick "brown" fox jumps over the lazy dog\n' * 20
        turns.append({"role": "user" if len(turns) % 2 else "assistant", "content": text[: min(900, left)]})
        left -= min(900, left) + 40
    asked = {"model": "m", "messages": turns, "temperature": 0.7, "max_tokens": 64, "stream": stream}
    return json.dumps(asked, separators=(",", ":")).encode()


class Client(asyncio.Protocol):
    def __init__(
        self, requests: list[bytes], first: int, until: float, seen: list[float], every: float, due: float
    ) -> None:
        self.requests, self.next, self.until, self.seen = requests, first, until, seen
        self.every, self.due = every, due  # seconds between two requests, 0 for none; when the next one may go
        self.over = asyncio.get_running_loop().create_future()
        self.errors = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.parser = httptools.HttpResponseParser(self)
        self.send_in_time()

    def send_in_time(self) -> None:
        left = self.due - time.perf_counter()
        self.due += self.every
        if left > 0:
            asyncio.get_running_loop().call_later(left, self.send)
        else:
            self.send()

    def send(self) -> None:
        self.began = time.perf_counter()
        self.transport.write(self.requests[self.next % len(self.requests)])
        self.next += 1

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        now = time.perf_counter()
        self.errors += self.parser.get_status_code() != 200
        self.seen.append(now - self.began)
        if max(now, self.due) < self.until:
            self.send_in_time()
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)


async def main(
    port: int, connections: int, seconds: float, size: int, *, stream: bool, rate: float = 0.0
) -> dict[str, float]:
    """`rate`: requests a second of all connections together, evenly spread; 0: as many as are answered."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
    extra = b"authorization: Bearer sk-test\r\nuser-agent: OpenAI/Python 1.0\r\naccept: application/json\r\n"
    bodies = [body(session, size, stream=stream) for session in range(SESSIONS)]
    requests = [b"%s%scontent-length: %d\r\n\r\n%s" % (head, extra, len(each), each) for each in bodies]
    loop, seen, began = asyncio.get_running_loop(), [], time.perf_counter()
    clients, until, every = [], began + seconds, connections / rate if rate else 0.0
    for at in range(connections):
        due = began + every * at / connections
        _, client = await loop.create_connection(
            lambda at=at, due=due: Client(requests, at, until, seen, every, due), "127.0.0.1", port
        )
        clients.append(client)
    await asyncio.gather(*(client.over for client in clients))
    seen.sort()
    return {
        "requests": len(seen),
        "errors": sum(client.errors for client in clients),
        "seconds": time.perf_counter() - began,
        "p50": statistics.median(seen),
        "p99": seen[int(len(seen) * 0.99)],
    }


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps(uvloop.run(main(**asked))) + "\n")
