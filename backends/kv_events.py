"""KV-cache events over ZMQ, in the form vLLM publishes them, so that a router can learn what a worker holds.

A message has three frames: topic, sequence number (8 bytes, big endian, from 0), payload. The payload is the
MessagePack array `[timestamp, [event...], rank]`; an event is an array too, its name first:

    ["BlockStored", block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium]
    ["BlockRemoved", block_hashes, medium]

As in vLLM the publisher connects to `tcp://host:port`, where a subscriber of many workers has bound, and binds only
where the endpoint has a `*` or is local to the machine. Events of one turn of the event loop travel together.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from backends.block_pool import Removed, Stored

MEDIUM = "GPU"
HIGH_WATER = 100_000
"""Messages kept for a slow subscriber before they are dropped; vLLM's own default."""


class MissingExtraError(Exception):
    """pyzmq is not installed."""


class KvEvents:
    """A cache listener that publishes. `soon` runs a callback at the end of the current turn of the event loop."""

    def __init__(
        self, endpoint: str, block_tokens: int, soon: Callable[[Callable[[], None]], Any], topic: str = ""
    ) -> None:
        try:
            import zmq
        except ImportError:
            raise MissingExtraError("KV events need pyzmq: pip install 'prefix-router[events]'") from None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUB)
        self._socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._block_tokens = block_tokens
        self._soon = soon
        self._topic = topic.encode()
        self._number = 0
        self._batch: list[list[Any]] = []
        try:
            self._socket.bind(endpoint) if binds(endpoint) else self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise OSError(error.errno, f"{endpoint}: {error.strerror}") from None

    def __call__(self, event: Stored | Removed) -> None:
        if not self._batch:
            self._soon(self.flush)
        self._batch.append(self._shown(event))

    def flush(self) -> None:
        if self._socket.closed or not self._batch:
            return
        payload = msgspec.msgpack.encode([time.time(), self._batch, 0])
        self._socket.send_multipart((self._topic, self._number.to_bytes(8, "big"), payload))
        self._number += 1
        self._batch = []

    def close(self) -> None:
        self._socket.close()
        self._context.term()

    def _shown(self, event: Stored | Removed) -> list[Any]:
        if isinstance(event, Removed):
            return ["BlockRemoved", event.hashes, MEDIUM]
        return ["BlockStored", event.hashes, event.parent, event.token_ids, self._block_tokens, None, MEDIUM]


def binds(endpoint: str) -> bool:
    return "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))
