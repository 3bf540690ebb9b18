"""Workers whose health page is well while no token comes; and those that only seem so."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from router.events import WorkerChanged
from tests.support.client import STREAM, Client, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.processes import mock_workers
from tests.support.worker import DONE, Worker, event, stream

STALL = 0.5
EJECT = {"eject_seconds": 1.0}
QUICK = {"interval_seconds": 0.1, "timeout_seconds": 2.0, "stall_seconds": STALL, "outliers": EJECT}
ORDER = {"policy": "tests.support.in_order"}
STREAMED = stream(event("1"), DONE)


def now() -> float:
    return asyncio.get_running_loop().time()


async def fleet(stage: Stage, count: int = 2, **settings: object) -> tuple[list[Worker], Running]:
    """Workers asked in this order, each known to be quick."""
    workers = [await stage.worker(answer=STREAMED) for _ in range(count)]
    named = [{"url": worker.url, "id": f"w{at}"} for at, worker in enumerate(workers)]
    running = await stage.gateway(*named, routing=ORDER, **{"health": QUICK, **settings})  # type: ignore[arg-type]
    for seat in running.seats.values():
        seat.load.learn_pace(100_000.0, 1.0)
    return workers, running


def state(running: Running, name: str = "w0") -> str:
    return running.seats[name].health.state.value


def causes(running: Running, name: str = "w0") -> list[str]:
    return [change.cause for change in running.told(WorkerChanged) if change.worker == name and change.after == "down"]


async def hang(stage: Stage, running: Running, worker: Worker, many: int = 3) -> tuple[asyncio.Event, list[Client]]:
    """Requests that get no token there until the gate opens."""
    gate = asyncio.Event()
    worker.answer = lambda _: stream(gate, event("1"), DONE)
    clients = [await stage.client(running) for _ in range(many)]
    for client in clients:
        await client.send(post(STREAM))
    await eventually(lambda: worker.running == many)
    return gate, clients


async def test_a_worker_that_gives_no_token_is_found_out_though_its_probes_are_good(stage: Stage) -> None:
    (stalled, other), running = await fleet(stage)
    gate, clients = await hang(stage, running, stalled)
    await eventually(lambda: state(running) == "down")
    assert causes(running) == ["stalled"]
    assert (await running.metrics())['prefix_router_ejections_total{cause="stalled",worker="w0"}'] == 1
    assert state(running, "w1") == "ready"
    for _ in range(5):
        answer = await ask(running.port, post(STREAM))
        assert (answer.status, answer.one("x-router-worker")) == (200, "w1")
    assert (len(stalled.requests), stalled.aborted) == (3, 0), "what runs there keeps its own limits"
    gate.set()
    for client in clients:
        assert (await client.answer()).whole
    stalled.heal()
    await eventually(lambda: state(running) == "trial")
    assert (await ask(running.port, post(STREAM))).one("x-router-worker") == "w0"
    await eventually(lambda: state(running) == "ready")
    assert len(other.requests) == 5


async def test_one_that_sent_its_head_and_then_nothing_is_found_out_too(stage: Stage) -> None:
    (stalled, _), running = await fleet(stage)
    stalled.answer = stream(event("1"), stop=0, ending="hang")
    client = await stage.client(running)
    await client.send(post(STREAM))
    await eventually(lambda: state(running) == "down")
    assert causes(running) == ["stalled"]
    client.drop()


async def test_good_probes_do_not_put_back_one_that_is_still_silent(stage: Stage) -> None:
    (stalled, _), running = await fleet(stage)
    gate, _ = await hang(stage, running, stalled)
    seat = running.seats["w0"]
    await eventually(lambda: seat.health.ejections >= 3, within=20)
    assert causes(running) == ["stalled"], "it never came back in between"
    assert len(stalled.requests) == 3
    gate.set()
    stalled.heal()


async def test_a_stream_that_is_silent_in_the_middle_is_no_stall(stage: Stage) -> None:
    (slow, _), running = await fleet(stage)
    gate = asyncio.Event()
    slow.answer = lambda _: stream(event("1"), gate, event("2"), DONE)
    client = await stage.client(running)
    await client.send(post(STREAM))
    await client.head()
    await asyncio.sleep(4 * STALL)
    assert state(running) == "ready"
    gate.set()


async def test_a_client_that_reads_slowly_is_not_its_workers_silence(stage: Stage) -> None:
    (worker, _), running = await fleet(stage, connections={"per_worker": 1})
    worker.answer = stream(*[event("x" * 60_000)] * 200, DONE)
    slow = await stage.client(running, receive_buffer=4096)
    await slow.send(post(STREAM))
    await slow.head()
    behind = await stage.client(running)
    await behind.send(post(STREAM))  # it waits for the only connection
    await asyncio.sleep(4 * STALL)
    assert state(running) == "ready"
    slow.drop()
    assert (await behind.answer()).status == 200


async def test_a_long_prompt_on_a_slow_worker_is_no_stall(stage: Stage) -> None:
    (slow, _), running = await fleet(stage)
    load = running.seats["w0"].load
    load.pace = 100.0
    slow.answer = lambda _: stream(event("1"), DONE, delay=4 * STALL)
    body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "%s"}]}' % (b"word " * 2000)
    assert (await ask(running.port, post(body))).whole
    assert causes(running) == []


async def test_a_worker_that_never_answered_has_longer(stage: Stage) -> None:
    """It may be loading, or compiling."""
    (slow, _), running = await fleet(stage)
    running.seats["w0"].load.pace = None
    gate, _ = await hang(stage, running, slow, many=1)
    await asyncio.sleep(2 * STALL)
    assert state(running) == "ready"
    await eventually(lambda: state(running) == "down")
    gate.set()
    slow.heal()


async def test_the_only_worker_is_still_asked(stage: Stage) -> None:
    (stalled,), running = await fleet(stage, count=1)
    gate, clients = await hang(stage, running, stalled)
    await eventually(lambda: state(running) == "down")
    client = await stage.client(running)
    await client.send(post(STREAM))
    await eventually(lambda: stalled.running == 4)
    gate.set()
    for each in (*clients, client):
        assert (await each.answer()).whole
    stalled.heal()


async def test_switched_off_nothing_is_looked_for(stage: Stage) -> None:
    (silent, _), running = await fleet(stage, health={**QUICK, "stall_seconds": 0})
    gate, _ = await hang(stage, running, silent)
    await asyncio.sleep(3 * STALL)
    assert state(running) == "ready"
    gate.set()
    silent.heal()


async def test_requests_that_wait_for_a_connection_to_it_go_elsewhere(stage: Stage) -> None:
    (stalled, other), running = await fleet(stage, connections={"per_worker": 2})
    gate, _ = await hang(stage, running, stalled, many=2)
    waiting = [await stage.client(running) for _ in range(4)]
    for client in waiting:
        await client.send(post(STREAM))
    await eventually(lambda: running.seats["w0"].load.in_flight == 6)
    for client in waiting:
        answer = await client.answer()
        assert (answer.status, answer.one("x-router-worker")) == (200, "w1")
    assert (len(stalled.requests), len(other.requests)) == (2, 4)
    assert running.seats["w0"].failed == 0, "what was never sent there does not speak against it"
    gate.set()
    stalled.heal()


async def test_a_changed_limit_counts_at_once(stage: Stage) -> None:
    (stalled, _), running = await fleet(stage, health={**QUICK, "stall_seconds": 600.0})
    gate, _ = await hang(stage, running, stalled)
    health = running.house.settings.health.model_copy(update={"stall_seconds": STALL})
    running.house.adopt(running.house.settings.model_copy(update={"health": health}))
    await eventually(lambda: state(running) == "down")
    gate.set()
    stalled.heal()


# A frozen process.


@pytest.fixture
async def frozen() -> AsyncIterator[tuple[str, str, int]]:
    """Two mock workers' URLs, and the first one's process."""
    with mock_workers(2) as mocks:
        yield mocks[0].url, mocks[1].url, mocks[0].process.pid
        mocks[0].process.send_signal(signal.SIGCONT)


async def test_a_frozen_worker_is_found_by_its_probes_and_slows_no_other(
    stage: Stage, frozen: tuple[str, str, int]
) -> None:
    """It accepts and says nothing. Its prompts go elsewhere, and the others' are served as before."""
    first, second, process = frozen
    health = {"interval_seconds": 0.2, "timeout_seconds": 0.5}
    running = await stage.gateway(first, second, health=health)
    names = [urlsplit(url).netloc for url in (first, second)]
    places: dict[int, str] = {}
    for at in range(24):
        answer = await ask(running.port, prompt(at))
        places[at] = answer.one("x-router-worker") or ""
    assert set(places.values()) == set(names)
    os.kill(process, signal.SIGSTOP)
    stuck = [await stage.client(running) for _ in range(20)]
    theirs = next(at for at, place in places.items() if place == names[0])
    for client in stuck:
        await client.send(prompt(theirs))
    others = [at for at, place in places.items() if place == names[1]]
    for at in others:
        began = now()
        assert (await ask(running.port, prompt(at))).one("x-router-worker") == names[1]
        assert now() - began < 3.0
    await eventually(lambda: running.seats[names[0]].health.state.value == "down")
    answer = await ask(running.port, prompt(theirs))
    assert (answer.status, answer.one("x-router-worker")) == (200, names[1]), "its keys spill"
    for client in stuck:
        client.drop()
    os.kill(process, signal.SIGCONT)
    await eventually(lambda: running.seats[names[0]].health.state.value == "ready")


def prompt(at: int) -> bytes:
    body = b'{"model": "mock-model", "max_tokens": 1, "prompt": "%d %s"}' % (at, b"text " * 100)
    return post(body, "/v1/completions")
