"""KV events, read as a subscriber reads vLLM's."""

import asyncio
from typing import Any

import msgpack
import pytest
import zmq

from backends.block_pool import Removed, Stored
from backends.kv_events import KvEvents, binds


@pytest.fixture
def subscriber() -> Any:
    """A bound subscriber, as one that listens to many workers, and its endpoint."""
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVTIMEO, 20_000)
    socket.subscribe(b"")
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    yield socket, f"tcp://127.0.0.1:{port}"
    socket.close()
    context.term()


@pytest.mark.parametrize(
    ("endpoint", "does"),
    [("tcp://*:5557", True), ("tcp://[::]:5557", True), ("ipc:///tmp/x", True), ("tcp://127.0.0.1:5557", False)],
)
def test_a_wildcard_binds_and_an_address_connects(endpoint: str, does: bool) -> None:
    assert binds(endpoint) == does


async def receive(socket: Any) -> list[bytes]:
    return await asyncio.to_thread(socket.recv_multipart)


async def connected(events: KvEvents, socket: Any) -> int:
    """Publishes until the subscriber hears: a PUB socket drops what nobody listens to. The next number is returned."""
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    for _ in range(1000):
        events(Removed([0]))
        events.flush()
        if await asyncio.to_thread(poller.poll, 10):
            break
    number = -1
    while await asyncio.to_thread(poller.poll, 100):
        number = int.from_bytes((await receive(socket))[1], "big")
    return number + 1


async def test_messages_have_vllms_frames_and_numbers(subscriber: Any) -> None:
    socket, endpoint = subscriber
    events = KvEvents(endpoint, 16, lambda _: None, "kv")
    number = await connected(events, socket)
    events(Stored([2**63 + 1, 5], None, list(range(32))))
    events(Stored([6], 5, [1] * 16))
    events(Removed([5]))
    events.flush()
    events.flush()
    topic, sequence, payload = await receive(socket)
    assert topic == b"kv"
    assert sequence == number.to_bytes(8, "big")
    when, batch, rank = msgpack.unpackb(payload)
    assert when > 0
    assert rank == 0
    assert batch == [
        ["BlockStored", [2**63 + 1, 5], None, list(range(32)), 16, None, "GPU"],
        ["BlockStored", [6], 5, [1] * 16, 16, None, "GPU"],
        ["BlockRemoved", [5], "GPU"],
    ]
    events.close()
    events.flush()


async def test_a_worker_tells_what_its_cache_stores(mock: Any, subscriber: Any) -> None:
    """Prompt blocks and generated ones, with the ids that `/tokenize` gives."""
    socket, endpoint = subscriber
    worker = await mock("--kv-events", endpoint, "--block-tokens", "4")
    prompt, told = "abcd" * 8, []
    for attempt in range(200):
        await worker.ask("/v1/completions", {"prompt": f"{attempt:4}" + prompt, "max_tokens": 9})
        if await asyncio.to_thread(socket.poll, 10):
            break
    while await asyncio.to_thread(socket.poll, 200):
        told += msgpack.unpackb((await receive(socket))[2])[1]
    ids = (await worker.ask("/tokenize", {"prompt": prompt})).json()["tokens"]
    assert {event[0] for event in told} == {"BlockStored"}
    assert sum(len(event[1]) for event in told) >= 4
    assert any(set(ids) <= set(event[3]) for event in told)


async def test_an_endpoint_that_is_none_is_an_error() -> None:
    with pytest.raises(OSError, match="nonsense"):
        KvEvents("nonsense", 16, lambda _: None)
