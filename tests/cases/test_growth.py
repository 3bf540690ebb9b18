"""Nothing grows with what clients send: neither series nor what is remembered of prompts, models and workers."""

import asyncio
import json
from random import Random
from typing import Any

import pytest

from router.house import House
from router.observe.model_names import MOST_MODELS
from tests.support.client import CHAT, get, post
from tests.support.compiled import interpreted
from tests.support.endpoints import CHAT as CHATS
from tests.support.endpoints import EMBEDDINGS, MESSAGES
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.growth import grown, sizes
from tests.support.stories import NotedSink, Sent
from tests.support.worker import DONE, event, reply, stream

SYSTEM = "You are the assistant of a company that sells garden tools. " * 20
USAGE = b'{"usage": {"prompt_tokens": 320, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 64}}}'
EVENTS = [(b"content-type", b"text/event-stream")]


class Journeys:
    """Whole journeys through a gateway's house, but for the sockets."""

    def __init__(self, running: Running) -> None:
        self.house: House = running.house
        self.sent: list[Sent] = []
        self.house.pool = lambda seat: InstantPool(self, seat)  # type: ignore[method-assign, assignment, return-value]

    def one(self, body: bytes, path: str = CHAT, *, answered: bool = True) -> None:
        sink = NotedSink()
        journey = self.house.open(self.house.paths[path.encode()], path.encode(), [], sink)
        journey.begin([])
        journey.feed(body)
        journey.complete()
        if not self.sent:
            return
        sent = self.sent.pop()
        if answered:
            sent.answers(200, None, USAGE)
        else:
            journey.cancel()


class InstantPool:
    base_path, greeting, has_credentials = b"", b" HTTP/1.1\r\nhost: w\r\n", False

    def __init__(self, journeys: Journeys, seat: Any) -> None:
        self._journeys, self._seat = journeys, seat

    def send(self, head: bytes, body: bytes, receiver: Any, now: float, *, fresh: bool = False) -> Any:
        self._journeys.sent.append(Sent(self._seat, head, body, receiver, fresh))
        return self._journeys.sent[-1].connection


async def series(running: Running) -> set[str]:
    return set(await running.metrics())


@interpreted
async def test_many_thousand_prompts_are_remembered_as_far_as_the_table_goes(lane: Stage) -> None:
    """A shared beginning and an end of its own each, at a small table; then all workers go."""
    workers = [await lane.worker() for _ in range(4)]
    running = await lane.gateway(*workers, routing={"table_hashes": 2000})
    pool = running.house.pool
    journeys, dice = Journeys(running), Random(6)
    seen: list[dict[str, int]] = []
    shown: list[set[str]] = []
    for at in range(20_000):
        said = f"{dice.randrange(10**12)} " * 40
        body = json.dumps({"model": "m", "messages": [{"role": "system", "content": SYSTEM}, {"content": said}]})
        journeys.one(body.encode(), answered=at % 10 > 0)
        if not (at + 1) % 4000:
            await asyncio.sleep(0.01)
            running.events.clear()
            seen.append(sizes(running.gateway))
            shown.append(await series(running))
    assert len(running.house.mind.holders) <= 2000 + 200
    growth = grown(seen[1], seen[-1])
    assert not {way: size for way, size in growth.items() if not is_bounded(way)}, "flat after it has warmed up"
    assert shown[1] == shown[-1]
    assert any(way.endswith("holders._young") and size > 100 for way, size in seen[-1].items()), "it does remember"
    running.house.pool = pool  # type: ignore[method-assign]
    for worker in workers:
        gone = post(b"", f"/admin/workers/{worker.id}").replace(b"POST", b"DELETE", 1)
        assert (await ask(running.port, gone)).status == 204
    assert len(running.house.mind.holders) == 0, "nobody is left who could hold anything"


async def test_thousands_of_names_make_no_series(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    client = await stage.client(running)
    statuses: set[int] = set()

    async def odd(at: int) -> None:
        endpoint = (CHATS, MESSAGES, EMBEDDINGS)[at % 3]
        statuses.add((await client.ask(post(endpoint.body("S", "Hi", model=f"model-{at}"), endpoint.path))).status)
        statuses.add((await client.ask(post(path=f"/v1/unknown/{at}"))).status)
        headers = [("X-Request-Id", f"id-{at}"), ("X-Session-Id", f"s{at}"), ("User-Agent", f"agent/{at}")]
        named = CHATS.body("S", "Hi", cache_salt=f"salt-{at}", prompt_cache_key=f"k{at}", user=f"u{at}")
        assert (await client.ask(post(named, f"{CHAT}?{at}", headers))).status == 200

    async def methods() -> None:
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "PROPFIND", "MKCOL", "SEARCH", "QUERY", "FOO"):
            for path in ("/v1/x", CHAT):
                other = await stage.client(running)
                await other.send(post(path=path).replace(b"POST", method.encode(), 1))
                await other.head()
                await other.close()

    for at in range(10):
        await odd(at)
    await methods()
    warm, held = await series(running), sizes(running.gateway)
    for at in range(10, 1000 if stage.fast else 200):
        await odd(at)
    await methods()
    assert await series(running) == warm
    assert statuses == {404}
    growth = grown(held, sizes(running.gateway), slack=64)
    bounded = {way: size for way, size in growth.items() if not is_bounded(way)}
    assert not bounded
    samples = await running.metrics()
    text = "".join(samples)
    assert not [word for word in ("model-", "unknown/", "salt-", "agent/", "id-9") if word in text]
    good = [name for name in samples if name.startswith("prefix_router_requests_total") and 'code="200"' in name]
    assert all('model="m"' in name for name in good), "what was refused is no success"


BOUNDED = (
    "._seeds",
    ".ladder._seen",
    ".holders._young",
    ".holders._old",
    "._latest",
    "._chosen",
    "._finished",
    "roster._removed",
)
"""Tables with a bound of their own, asserted where they are made, that are not full yet after a thousand names."""


def is_bounded(way: str) -> bool:
    return any(name in way for name in BOUNDED)


async def test_names_of_adapters_that_come_and_go_make_so_many_series_at_most(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, health={"interval_seconds": 60})
    (seat,) = running.seats.values()
    client = await stage.client(running)
    for at in range(MOST_MODELS + 200):
        running.house.fleet.discover(seat, frozenset([f"adapter-{at}"]))
        assert (await client.ask(post(b'{"model": "adapter-%d"}' % at))).status == 200
    samples = await running.metrics()
    totals = [name for name in samples if name.startswith("prefix_router_requests_total")]
    assert len(totals) == MOST_MODELS + 1
    assert sum(samples[name] for name in totals if 'model="other"' in name) == 200


async def test_a_worker_of_any_model_makes_no_series_of_their_names_either(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(models=()))
    client = await stage.client(running)
    for at in range(5):
        await client.ask(post(b'{"model": "model-%d"}' % at))
    warm, held = await series(running), sizes(running.gateway)
    for at in range(5, 1000):
        assert (await client.ask(post(b'{"model": "model-%d"}' % at))).status == 200
    assert await series(running) == warm
    growth = grown(held, sizes(running.gateway), slack=300)
    assert not {way: size for way, size in growth.items() if not is_bounded(way)}
    huge = json.dumps({"model": "x" * 100_000, "messages": []}).encode()
    assert (await client.ask(post(huge))).status == 200
    assert await series(running) == warm


@pytest.mark.parametrize("limit", [None, 4])
async def test_two_hundred_workers_that_came_and_went_leave_nothing(stage: Stage, limit: int | None) -> None:
    """Each is used, some fail, and each goes while a stream of its own still runs."""
    stays = await stage.worker(models=("stays",))
    running = await stage.gateway(stays, health={"interval_seconds": 60})
    gate = asyncio.Event()
    held: dict[str, int] = {}
    warm: set[str] = set()
    kinds = [reply(), reply(b"{}", 500), reply(b"{}", 503), reply(stop=-1, ending="reset")]
    count = 200 if stage.fast else 60
    for at in range(count):
        if at == 20:
            await eventually(lambda: not running.taken() and not running.watched())
            running.events.clear()
            held, warm = sizes(running.gateway), await series(running)
        going = await stage.worker(models=(f"goes-{at % 4}",), answer=kinds[at % len(kinds)])
        added = {"url": going.url, "labels": {"at": f"{at}"}, "max_in_flight": limit}
        assert (await ask(running.port, post(json.dumps(added).encode(), "/admin/workers"))).status == 201
        await eventually(lambda going=going: running.state(going) == "ready")
        await ask(running.port, post(json.dumps({"model": f"goes-{at % 4}", "messages": []}).encode()))
        assert f'worker="{going.id}"' in "".join(await running.metrics())
        gate.clear()
        going.answer = stream(event("1"), gate, event("2"), DONE)
        client = await stage.client(running)
        await client.send(post(json.dumps({"model": f"goes-{at % 4}", "stream": True}).encode()))
        answer = await client.head()
        await client.piece(answer)
        gone = post(b"", f"/admin/workers/{going.id}").replace(b"POST", b"DELETE", 1)
        assert (await ask(running.port, gone)).status == 204
        gate.set()
        assert (await client.rest(answer)).whole
        await client.close()
        await going.close()
    stage.workers[1:] = []
    await eventually(lambda: not running.taken() and not running.watched())
    running.events.clear()
    growth = grown(held, sizes(running.gateway))
    after = await series(running)
    assert {name for name in after if "worker=" in name and stays.id not in name} == set()
    assert after == warm
    assert not {way: size for way, size in growth.items() if not is_bounded(way)}
    assert (await ask(running.port, get("/v1/models"))).body.count(b"goes-") == 0
