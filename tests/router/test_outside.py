"""What the gateway hears besides its own requests: each part is there where it is of use, and gone with the gateway."""

import asyncio
import json
import socket
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from router.clock import monotonic
from router.events import WorkerLeft
from router.layers import load
from router.outside import ALONE, TOGETHER, Outside
from router.settings import Settings
from router.types import KvSource, worker_from_url
from router.wiring import Gateway
from tests.support.client import post
from tests.support.gateway import Running, Stage, ask, eventually


def settings(**given: object) -> Settings:
    return load([("test", given)], {})[0]


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


# How often it looks at queues.

SHARED = "redis://127.0.0.1:1"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, ALONE),
        ({"listen": {"processes": 4}}, TOGETHER),
        ({"listen": {"processes": 0}}, TOGETHER),
        ({"share": SHARED}, TOGETHER),
        ({"share": SHARED, "routing": {"replicas": 3}}, TOGETHER),
        ({"routing": {"replicas": 3}}, TOGETHER),
        ({"routing": {"replicas": 3}, "listen": {"processes": 4}}, TOGETHER),
        ({"signals": {"queue_seconds": 0.7}}, 0.7),
        ({"signals": {"queue_seconds": 0}, "routing": {"replicas": 3}}, 0.0),
    ],
)
def test_queues_are_looked_at_where_others_send_too(given: dict[str, Any], seconds: float) -> None:
    made = settings(**given)
    gateway = Gateway(made)
    assert Outside(gateway.house, made, Random(1))._queue_seconds() == seconds


async def test_nothing_is_listened_to_before_it_is_opened() -> None:
    before = asyncio.all_tasks()
    gateway = Gateway(settings(share=SHARED, workers=[{"url": "http://a:1", "kv_events": "tcp://127.0.0.1:1"}]))
    assert asyncio.all_tasks() == before
    outside = gateway.outside
    assert (outside.redis, outside.events, outside.sharing) == (None, None, None)
    assert gateway.house.mind.outbox is None
    assert outside.heard() == {}
    await outside.close()


# Sharing.


async def test_a_gateway_alone_tells_nobody_and_keeps_no_news(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    await ask(running.port, post())
    assert running.house.mind.outbox is None
    assert running.gateway.outside.heard() == {}
    assert not any("_shared_total" in name for name in await running.metrics())


async def test_whoever_asks_for_the_sharing_gets_the_same_one() -> None:
    gateway = Gateway(settings())
    assert gateway.share() is gateway.share() is gateway.outside.sharing
    await gateway.outside.close()


async def test_with_an_address_news_go_there_and_loads_too(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), share=f"redis://127.0.0.1:{closed_port()}")
    outside = running.gateway.outside
    assert outside.redis is not None
    assert outside.sharing is not None
    assert outside.sharing._channels == outside.sharing._far == [outside.redis]
    for at in range(3):
        assert (await ask(running.port, post())).status == 200, f"without a Redis requests are as before ({at})"
        await eventually(lambda at=at: outside.sharing is not None and outside.sharing.sent == at + 1)
    shown = await running.metrics()
    assert shown['prefix_router_shared_total{kind="sent"}'] == 3
    assert shown['prefix_router_shared_total{kind="received"}'] == 0


# KV events.


class Publisher:
    """An engine that publishes what its cache does."""

    def __init__(self) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.PUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self.endpoint = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.number = 0

    async def say(self, *events: Any) -> None:
        payload = msgspec.msgpack.encode([1.0, events, 0])
        await self._socket.send_multipart([b"", self.number.to_bytes(8, "big"), payload])
        self.number += 1

    def close(self) -> None:
        self._socket.close()
        self._context.term()


@pytest.fixture
async def publisher() -> Iterator[Publisher]:  # type: ignore[misc]
    publisher = Publisher()
    yield publisher
    publisher.close()


def counts(running: Running, worker: str) -> dict[str, int]:
    follower = running.gateway.outside.events.followers.get(worker)
    return {} if follower is None else dict(follower.counts)


async def heard_from(running: Running, publisher: Publisher, worker: str) -> None:
    """Say something until it is heard: a publisher drops what nobody listens to."""
    before = counts(running, worker).get("cleared", 0)
    while counts(running, worker).get("cleared", 0) == before:
        await publisher.say(["AllBlocksCleared"])
        await asyncio.sleep(0.01)


async def test_without_a_worker_that_publishes_no_library_is_loaded_and_the_table_decides(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    assert running.gateway.outside.events is None
    assert running.house.mind.truth is None


async def test_a_worker_that_publishes_is_followed_and_what_it_says_is_counted(
    stage: Stage, publisher: Publisher
) -> None:
    worker, silent = await stage.worker(), await stage.worker()
    running = await stage.gateway({"url": worker.url, "kv_events": publisher.endpoint}, silent)
    assert running.house.mind.truth is running.gateway.outside.events
    assert set(running.gateway.outside.events.followers) == {worker.id}
    await heard_from(running, publisher, worker.id)
    await publisher.say(["BlockStored", [1, 2], None, [1, 2, 3, 4], 2, None, "GPU"])
    await eventually(lambda: counts(running, worker.id).get("stored") == 2)
    shown = await running.metrics()
    assert shown[f'prefix_router_kv_events_total{{kind="stored",worker="{worker.id}"}}'] == 2
    assert shown['prefix_router_kv_matches_total{result="matched"}'] == 0


async def test_a_worker_that_is_told_later_where_to_publish_is_followed_then(
    stage: Stage, publisher: Publisher
) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    gateway = running.gateway
    gateway.roster.add(worker_from_url(worker.url, kv_events=KvSource(publisher.endpoint)))
    gateway.apply()
    await heard_from(running, publisher, worker.id)
    gateway.roster.add(worker_from_url(worker.url))
    gateway.apply()
    assert gateway.outside.events.followers == {}
    assert (await ask(running.port, post())).status == 200


async def test_a_worker_that_leaves_is_followed_no_more_and_its_counts_go(stage: Stage, publisher: Publisher) -> None:
    worker, other = await stage.worker(), await stage.worker()
    running = await stage.gateway(other)
    gateway = running.gateway
    gateway.roster.add(worker_from_url(worker.url, kv_events=KvSource(publisher.endpoint)))
    gateway.apply()
    await heard_from(running, publisher, worker.id)
    assert any(worker.id in name and "kv_events" in name for name in await running.metrics())
    gateway.roster.remove(worker.id)
    gateway.apply()
    assert running.told(WorkerLeft) == [WorkerLeft(worker.id)]
    assert gateway.outside.events.followers == {}
    assert not any(worker.id in name for name in await running.metrics())


async def test_an_endpoint_that_nobody_serves_harms_nothing(stage: Stage) -> None:
    worker = await stage.worker()
    given = {"url": worker.url, "kv_events": f"tcp://127.0.0.1:{closed_port()}"}
    running = await stage.gateway(given)
    for _ in range(3):
        assert (await ask(running.port, post())).status == 200


async def test_garbage_in_place_of_events_is_counted_and_harms_nothing(stage: Stage, publisher: Publisher) -> None:
    worker = await stage.worker()
    running = await stage.gateway({"url": worker.url, "kv_events": publisher.endpoint})
    await heard_from(running, publisher, worker.id)
    for frames in ([b""], [b"", b"x", b"y"], [b"", bytes(8), b"\xc1"], [b"", bytes(8), b"\x91" * 10_000]):
        await publisher._socket.send_multipart(frames)
    await eventually(lambda: counts(running, worker.id).get("malformed", 0) >= 3)
    assert (await ask(running.port, post())).status == 200


# Its end.


async def test_at_its_end_nothing_of_it_is_left(stage: Stage, publisher: Publisher) -> None:
    worker = await stage.worker()
    running = await stage.gateway(
        {"url": worker.url, "kv_events": publisher.endpoint},
        share=f"redis://127.0.0.1:{closed_port()}",
        signals={"queue_seconds": 0.02},
    )
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "text " * 500}]}).encode()
    assert (await ask(running.port, post(body))).status == 200
    await eventually(lambda: len(worker.scrapes) > 2)
    await running.stop()
    assert not running.own_tasks() - {asyncio.current_task()}
    assert running.house.mind.outbox is None
    seen = len(worker.scrapes)
    await asyncio.sleep(0.2)
    assert len(worker.scrapes) == seen
    assert all(seat.load.wait(monotonic()) == 0 for seat in running.seats.values())
