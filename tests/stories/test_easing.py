"""Workers that come in slowly, leave one prefix after the other, or fail faster than others work."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from tests.support.client import CHAT, Response, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, Answer, Seen, event, reply, stream

TOPICS = 50


def chat(at: int, user: str = "Hello", words: int = 150, **fields: Any) -> bytes:
    system = f"You are an expert on subject {at}. " * (words // 6)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


async def admin(running: Running, path: str, body: Any = None) -> Response:
    return await ask(running.port, post(b"" if body is None else json.dumps(body).encode(), f"/admin{path}"))


async def would_go(running: Running) -> list[str]:
    """Where each of the prefixes would go now."""
    return [(await admin(running, "/explain", json.loads(chat(at)))).json()["chosen"] for at in range(TOPICS)]


async def state(running: Running, worker_id: str) -> str:
    return running.seats[worker_id].health.state.value


# A hand-over.


@pytest.mark.parametrize("policy", ["prefix_cost", "prefix_bounded"])
async def test_a_worker_drained_over_some_time_gives_its_prefixes_away_one_after_the_other(
    stage: Stage, policy: str
) -> None:
    seconds = 4.0
    workers = [await stage.worker() for _ in range(2)]
    running = await stage.gateway(*workers, routing={"policy": policy, "slow_start_seconds": 0})
    for at in range(TOPICS):
        await ask(running.port, post(chat(at)))
    leaving = workers[0].id
    before = await would_go(running)
    held = before.count(leaving)
    assert 10 < held < 40
    began = asyncio.get_running_loop().time()
    answer = await admin(running, f"/workers/{leaving}/drain?over_seconds={seconds}")
    assert (answer.status, answer.json()["state"]) == (200, "ready"), "it is used until it has given all away"
    left: list[int] = []
    moved: set[int] = set()
    while running.seats[leaving].health.state.value == "ready":
        now = await would_go(running)
        gone = {at for at in range(TOPICS) if before[at] == leaving and now[at] != leaving}
        assert moved <= gone, "what has moved does not come back"
        assert [now[at] for at in range(TOPICS) if before[at] != leaving] == [workers[1].id] * (TOPICS - held)
        moved = gone
        left.append(held - len(gone))
        await asyncio.sleep(seconds / 16)
    assert asyncio.get_running_loop().time() - began > 0.8 * seconds
    assert left == sorted(left, reverse=True)
    assert len({many for many in left if 0 < many < held}) >= 3, f"it was not gradual: {left}"
    assert await state(running, leaving) == "draining"
    assert set(await would_go(running)) == {workers[1].id}


async def test_undraining_in_the_middle_stops_the_hand_over(stage: Stage) -> None:
    workers = [await stage.worker() for _ in range(2)]
    running = await stage.gateway(*workers)
    for at in range(TOPICS):
        await ask(running.port, post(chat(at)))
    before = await would_go(running)
    leaving = workers[0].id
    await admin(running, f"/workers/{leaving}/drain?over_seconds=1.5")

    async def some_moved() -> bool:
        return await would_go(running) != before

    while not await some_moved():
        await asyncio.sleep(0.02)
    answer = await admin(running, f"/workers/{leaving}/undrain")
    assert (answer.status, answer.json()["state"]) == (200, "ready")
    assert await would_go(running) == before, "all are back where they are held"
    await asyncio.sleep(1.8)
    assert await state(running, leaving) == "ready", "and it is not drained after all"
    assert await would_go(running) == before


async def test_a_drain_at_once_ends_a_hand_over_under_way(stage: Stage) -> None:
    workers = [await stage.worker() for _ in range(2)]
    running = await stage.gateway(*workers)
    await admin(running, f"/workers/{workers[0].id}/drain?over_seconds=3600")
    assert await state(running, workers[0].id) == "ready"
    answer = await admin(running, f"/workers/{workers[0].id}/drain")
    assert answer.json()["state"] == "draining"
    assert (await admin(running, f"/workers/{workers[0].id}/undrain")).json()["state"] == "ready"
    assert running.seats[workers[0].id].easing is None


async def test_a_worker_removed_during_its_hand_over_is_not_drained_when_it_comes_back(stage: Stage) -> None:
    workers = [await stage.worker() for _ in range(2)]
    running = await stage.gateway(*workers)
    leaving = workers[0].id
    await admin(running, f"/workers/{leaving}/drain?over_seconds=0.5")
    gone = post(b"", f"/admin/workers/{leaving}").replace(b"POST", b"DELETE", 1)
    assert (await ask(running.port, gone)).status == 204
    assert (await admin(running, "/workers", {"url": workers[0].url})).status == 201
    await running.ready()
    await asyncio.sleep(0.8)
    assert await state(running, leaving) == "ready"


@pytest.mark.parametrize("seconds", ["-1", "nan", "soon", "90000", ""])
async def test_a_time_that_is_none_is_refused_and_drains_nothing(stage: Stage, seconds: str) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    answer = await admin(running, f"/workers/{worker.id}/drain?over_seconds={seconds}")
    assert answer.status == 400
    assert await state(running, worker.id) == "ready"
    assert running.seats[worker.id].easing is None


async def test_the_only_worker_serves_while_it_hands_over(stage: Stage) -> None:
    """There is nobody to hand anything to."""
    worker = await stage.worker()
    running = await stage.gateway(worker)
    await admin(running, f"/workers/{worker.id}/drain?over_seconds=0.5")
    while running.state(worker) == "ready":
        assert (await ask(running.port, post(chat(1)))).status in (200, 503)
        await asyncio.sleep(0.02)
    assert running.state(worker) == "draining"


# A slow start.


async def busy_fleet(stage: Stage, monkeypatch: pytest.MonkeyPatch, gate: asyncio.Event, **routing: Any) -> Running:
    """Two workers that have been at work, with sixteen streams under way that end with the gate."""
    old = [await stage.worker(answer=lambda _: stream(event("1"), gate, DONE)) for _ in range(2)]
    running = await stage.gateway(*old, routing=routing)
    monkeypatch.setattr("router.core.fleet.SETTLED_SECONDS", 0.0)
    for at in range(16):
        client = await stage.client(running)
        await client.send(post(chat(100 + at, stream=True)))
        await client.head()
    return running


async def test_a_newcomer_to_a_busy_fleet_gets_few_requests_at_a_time_at_first(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    policy = {"policy": "least_outstanding", "slow_start_seconds": 3600.0}
    running = await busy_fleet(stage, monkeypatch, gate, **policy)
    new = await stage.worker(answer=lambda _: stream(event("1"), gate, DONE))
    assert (await admin(running, "/workers", {"url": new.url})).status == 201
    await running.ready()
    places: Counter[str] = Counter()
    for at in range(12):
        client = await stage.client(running)
        await client.send(post(chat(at, stream=True)))
        places[(await client.head()).one("x-router-worker") or ""] += 1
    assert places[new.id] == 1, "an idle one is used; then the others, though they have more to do"
    assert new.most_at_once == 1
    gate.set()


async def test_without_a_slow_start_a_newcomer_gets_what_the_policy_says(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    running = await busy_fleet(stage, monkeypatch, gate, policy="least_outstanding", slow_start_seconds=0)
    new = await stage.worker(answer=lambda _: stream(event("1"), gate, DONE))
    await admin(running, "/workers", {"url": new.url})
    await running.ready()
    for at in range(6):
        client = await stage.client(running)
        await client.send(post(chat(at, stream=True)))
        assert (await client.head()).one("x-router-worker") == new.id
    gate.set()


async def test_a_newcomers_share_grows_with_the_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()
    running = await busy_fleet(stage, monkeypatch, gate, policy="least_outstanding", slow_start_seconds=1.0)
    new = await stage.worker(answer=lambda _: stream(event("1"), gate, DONE))
    await admin(running, "/workers", {"url": new.url})
    await running.ready()
    await asyncio.sleep(1.1)
    for at in range(6):
        client = await stage.client(running)
        await client.send(post(chat(at, stream=True)))
        assert (await client.head()).one("x-router-worker") == new.id
    gate.set()


async def test_an_idle_newcomer_is_never_passed_over(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request after the other: slow start limits what is concurrent, and nothing else."""
    old = await stage.worker()
    running = await stage.gateway({"url": old.url, "id": "b"}, routing={"policy": "tests.support.in_order"})
    monkeypatch.setattr("router.core.fleet.SETTLED_SECONDS", 0.0)
    await ask(running.port, post(chat(0)))
    new = await stage.worker()
    await admin(running, "/workers", {"url": new.url, "id": "a"})
    await running.ready()
    assert running.seats["a"].easing is not None
    for at in range(10):
        assert (await ask(running.port, post(chat(at)))).one("x-router-worker") == "a"


async def test_a_fleet_that_starts_together_starts_at_full_speed(stage: Stage) -> None:
    running = await stage.gateway(*[await stage.worker() for _ in range(3)])
    assert [seat.easing for seat in running.seats.values()] == [None] * 3


# One that fails fast.


@pytest.mark.parametrize("policy", ["prefix_cost", "least_work"])
async def test_a_worker_that_fails_at_once_does_not_draw_all_requests(stage: Stage, policy: str) -> None:
    """Its probes are well and it is always idle, since failing takes no time; the others work for a while."""

    def slow(_: Seen) -> Answer:
        return reply(delay=0.05)

    broken = await stage.worker(answer=reply(b'{"error": "out of memory"}', 500))
    good = [await stage.worker(answer=slow) for _ in range(2)]
    running = await stage.gateway(broken, *good, routing={"policy": policy}, health={"unhealthy_after": 1000})
    total, at_once = 90, 6
    turns = iter(range(total))

    async def keep_asking() -> None:
        for at in turns:
            await ask(running.port, post(chat(at)))

    await asyncio.gather(*(keep_asking() for _ in range(at_once)))
    assert sum(len(worker.requests) for worker in (broken, *good)) == total
    assert len(broken.requests) < total / 3, f"{len(broken.requests)} of {total} went to the one that fails"
    assert all(len(worker.requests) > total / 6 for worker in good)


@pytest.mark.parametrize("policy", ["prefix_cost", "least_work"])
async def test_a_worker_that_failed_once_is_soon_used_again(stage: Stage, policy: str) -> None:
    worker, other = await stage.worker(answer=reply(b"{}", 500)), await stage.worker()
    running = await stage.gateway(worker, other, routing={"policy": policy})
    at = iter(range(10_000))
    while not worker.requests:
        await ask(running.port, post(chat(next(at))))
    worker.heal()
    seen = len(worker.requests)
    end = asyncio.get_running_loop().time() + 15
    while len(worker.requests) == seen:
        assert asyncio.get_running_loop().time() < end
        await ask(running.port, post(chat(next(at)), CHAT))
        await asyncio.sleep(0.05)
    await eventually(lambda: running.state(worker) == "ready")
