"""Workers given by name: when the name leads elsewhere, requests and probes follow."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from tests.support.client import STREAM, get, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.names import Names
from tests.support.worker import DONE, Worker, event, stream

OLD, NEW = "127.0.0.1", "127.0.0.2"
NAME = "worker.test"
SOON, LATE = {"resolve_seconds": 0.2}, {"resolve_seconds": 3600.0}
PROBES = {"interval_seconds": 0.1, "timeout_seconds": 1.0}


@pytest.fixture
async def names(stage: Stage) -> AsyncIterator[Names]:
    """Asked for first, so that the stage ends before the name service does."""
    names = Names()
    names.at[NAME] = [OLD]
    with names.serving():
        yield names
        await stage.check()
        for running in stage.gateways:
            await running.stop()


async def pair(stage: Stage) -> tuple[Worker, Worker, str]:
    """Two workers on one port of two addresses, and the URL by name."""
    old = await stage.worker()
    new = await stage.worker(host=NEW, port=old.port)
    return old, new, f"http://{NAME}:{old.port}"


async def served(running: Running) -> int:
    return (await ask(running.port, post())).status


async def test_a_failed_connect_finds_the_new_address_at_once(stage: Stage, names: Names) -> None:
    old, new, url = await pair(stage)
    running = await stage.gateway(url, connections=LATE, health=PROBES)
    assert await served(running) == 200
    await asyncio.sleep(0.3)
    names.at[NAME] = [NEW]
    await old.refuse()
    assert await served(running) == 200
    assert (len(old.requests), len(new.requests)) == (1, 1)
    await eventually(lambda: len(new.probes) >= 3)
    assert running.seats[f"{NAME}:{old.port}"].health.state.value in ("ready", "suspect")


async def test_an_old_address_that_still_answers_does_not_keep_the_traffic(stage: Stage, names: Names) -> None:
    old, new, url = await pair(stage)
    running = await stage.gateway(url, connections=SOON, health=PROBES)
    client = await stage.client(running)
    assert (await client.ask()).status == 200
    names.at[NAME] = [NEW]
    await eventually(lambda: len(new.probes) >= 2)
    probes, requests = len(old.probes), len(old.requests)
    for _ in range(5):
        assert (await client.ask()).status == 200
    assert (len(old.requests), len(new.requests)) == (requests, 5)
    await eventually(lambda: len(new.probes) >= 6)
    assert len(old.probes) <= probes + 1, "the connection that probed the old one is closed"
    await eventually(lambda: not old._peers)


async def test_a_stream_from_the_old_address_ends_as_it_began(stage: Stage, names: Names) -> None:
    old, new, url = await pair(stage)
    gate = asyncio.Event()
    old.answer = lambda _: stream(event("1"), gate, event("2"), DONE)
    running = await stage.gateway(url, connections=SOON, health=PROBES)
    client = await stage.client(running)
    await client.send(post(STREAM))
    head = await client.head()
    names.at[NAME] = [NEW]
    await eventually(lambda: len(new.probes) >= 2)
    gate.set()
    assert (await client.rest(head)).whole
    assert await served(running) == 200
    assert len(new.requests) == 1


async def test_when_a_name_moves_its_cache_is_forgotten(stage: Stage, names: Names) -> None:
    _, new, url = await pair(stage)
    running = await stage.gateway(url, connections=SOON, health=PROBES)
    body = b'{"model": "m", "messages": [{"role": "user", "content": "%s"}]}' % (b"word " * 400)
    for _ in range(2):
        await ask(running.port, post(body))
    assert running.finished[-1].predicted_cached_tokens > 100
    names.at[NAME] = [NEW]
    await eventually(lambda: len(new.probes) >= 2)
    await ask(running.port, post(body))
    assert running.finished[-1].predicted_cached_tokens == 0


async def test_all_addresses_of_a_name_are_tried(stage: Stage, names: Names) -> None:
    _, new, url = await pair(stage)
    names.at[NAME] = ["127.0.0.9", NEW]
    running = await stage.gateway(url, connections=LATE, health=PROBES)
    assert await served(running) == 200
    assert len(new.requests) == 1


async def test_while_the_name_service_fails_or_hangs_the_worker_is_used(stage: Stage, names: Names) -> None:
    old, _, url = await pair(stage)
    running = await stage.gateway(url, connections={"resolve_seconds": 0.05}, health={"interval_seconds": 30})
    names.at[NAME] = socket.gaierror(socket.EAI_AGAIN, "try again")
    asked = names.asked[NAME]
    await eventually(lambda: names.asked[NAME] > asked + 2)
    await old.hang_up()
    assert await served(running) == 200
    names.gate.clear()
    asked = names.asked[NAME]
    await eventually(lambda: names.asked[NAME] == asked + 1)
    await old.hang_up()
    for _ in range(10):
        assert await served(running) == 200
    assert names.asked[NAME] == asked + 1, "one look-up at a time"
    names.gate.set()


async def test_a_name_that_is_not_there_delays_nobody_else(stage: Stage, names: Names) -> None:
    names.at["nowhere.test"] = socket.gaierror(socket.EAI_NONAME, "no such name")
    good = await stage.worker()
    running = await stage.gateway(good, "http://nowhere.test:1", ready=False, connections=SOON, health=PROBES)
    await running.ready(1)
    assert await served(running) == 200
    assert running.seats["nowhere.test:1"].health.state.value == "starting"


async def test_an_address_is_never_looked_up(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    assert await served(running) == 200
    assert len(running.house.resolver) == 0


async def test_proxy_variables_mean_nothing_to_named_workers(
    stage: Stage, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    old, _, url = await pair(stage)
    running = await stage.gateway(url)
    assert await served(running) == 200
    assert (await ask(running.port, get("/v1/models"))).json()["data"][0]["id"] == "m"
    assert len(old.requests) == 1
