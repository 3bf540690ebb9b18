"""More comes than the workers can take: who is refused and told when to come back, who waits for which worker, and
who asks for more than its rate allows."""

import asyncio
import json
from typing import Any

import pytest

from router.events import Queued
from tests.support.client import HELLO, STREAM, post
from tests.support.gates import Gates
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, Worker, event, reply, stream

LONG = " ".join(f"word {at}" for at in range(3000))


async def busy(stage: Stage, **settings: Any) -> tuple[Running, Worker, Gates]:
    """A worker that takes one request at a time, and is at one."""
    gates = Gates()
    worker = await stage.worker(answer=gates)
    running = await stage.gateway({"url": worker.url, "max_in_flight": 1}, **settings)
    gates.asking.append(asyncio.ensure_future(ask(running.port, post())))
    await eventually(lambda: worker.running == 1)
    return running, worker, gates


def teach(running: Running, a_second: float) -> None:
    """The room knows its pace, as if it had been at work for a minute."""
    room, now = running.house.room, running.house.clock()
    drain = room._drain("m", now)
    drain._seconds, drain._left = 100.0, 100.0 * a_second


async def test_the_limit_for_workers_that_name_none_holds(stage: Stage) -> None:
    gates = Gates()
    workers = [await stage.worker(answer=gates) for _ in range(2)]
    running = await stage.gateway(
        workers[0].url, {"url": workers[1].url, "max_in_flight": 3}, limits={"worker_in_flight": 1}
    )
    asking = [asyncio.ensure_future(ask(running.port, post())) for _ in range(10)]
    await eventually(lambda: len(running.house.room) == 6)
    assert [worker.running for worker in workers] == [1, 3]
    gates.open()
    assert [(await each).status for each in asking] == [200] * 10
    assert [worker.most_at_once for worker in workers] == [1, 3]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_whoever_would_wait_too_long_is_refused_at_once(stage: Stage, path: str) -> None:
    running, _, gates = await busy(stage, queue={"wait_seconds": 20})
    gates.asking += [asyncio.ensure_future(ask(running.port, post())) for _ in range(3)]
    await eventually(lambda: len(running.house.room) == 3)
    teach(running, 0.1)
    answer = await ask(running.port, post(HELLO, path))
    assert answer.status == 429
    assert 20 <= int(answer.one("retry-after") or 0) <= 60
    assert "queue.wait_seconds" in json.dumps(answer.json())
    assert len(running.house.room) == 3
    metrics = await running.metrics()
    assert metrics['prefix_router_rejected_total{code="overloaded"}'] == 1
    assert metrics['prefix_router_queue_left_total{how="refused",priority="0"}'] == 1
    await gates.all(200)


async def test_whoever_has_too_little_time_is_refused_at_once(stage: Stage) -> None:
    running, worker, gates = await busy(stage)
    teach(running, 0.2)
    answer = await ask(running.port, post(headers=[("x-request-timeout", "2")]))
    assert (answer.status, answer.code) == (429, "overloaded")
    assert worker.started == 1
    await gates.all(200)


async def test_the_time_to_come_back_after_follows_the_measured_pace(stage: Stage) -> None:
    running, _, gates = await busy(stage, queue={"max": 10})
    gates.asking += [asyncio.ensure_future(ask(running.port, post())) for _ in range(10)]
    await eventually(lambda: len(running.house.room) == 10)
    teach(running, 2.0)
    answer = await ask(running.port, post())
    assert answer.status == 429
    assert 5 <= int(answer.one("retry-after") or 0) <= 9
    await gates.all(200)
    assert (await ask(running.port, post())).status == 200


async def test_a_more_important_request_takes_the_place_of_one_that_waits(stage: Stage) -> None:
    running, worker, gates = await busy(stage, queue={"max": 2, "open_priorities": True})
    waiting = []
    for priority in (2, 1):
        waiting.append(asyncio.ensure_future(ask(running.port, numbered(priority))))
        await eventually(lambda: len(running.house.room) == len(waiting))
    urgent = asyncio.ensure_future(ask(running.port, numbered(-1)))
    pushed = await waiting[0]
    assert (pushed.status, pushed.code) == (429, "overloaded")
    assert pushed.one("retry-after")
    assert (await ask(running.port, numbered(3))).status == 429
    gates.asking += [urgent, waiting[1]]
    await gates.all(200)
    assert [json.loads(body).get("user") for body in worker.bodies] == [None, "-1", "1"]
    metrics = await running.metrics()
    assert metrics['prefix_router_queue_left_total{how="pushed_out",priority="2"}'] == 1
    assert metrics['prefix_router_queue_left_total{how="admitted",priority="-1"}'] == 1
    assert metrics['prefix_router_queue_admitted_seconds_total{priority="-1"}'] > 0


def numbered(priority: int) -> bytes:
    body = json.dumps({"model": "m", "messages": [], "user": str(priority)}).encode()
    return post(body, headers=[("x-priority", str(priority))])


async def test_under_a_flood_the_room_and_the_workers_stay_within_their_limits(stage: Stage) -> None:
    """Two hundred at once, three times as many as there is room for: each gets one answer, and all comes back."""
    workers = [await stage.worker(answer=lambda _: reply(delay=0.02)) for _ in range(2)]
    running = await stage.gateway(*workers, limits={"worker_in_flight": 4}, queue={"max": 60})
    answers = await asyncio.gather(*[ask(running.port, post()) for _ in range(200)])
    statuses = [answer.status for answer in answers]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= 68
    assert all(answer.one("retry-after") for answer in answers if answer.status == 429)
    assert max(worker.most_at_once for worker in workers) <= 4
    assert sum(worker.started for worker in workers) == statuses.count(200)


# Waiting for the warm worker.


def chat(text: str, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **more}).encode()


async def warm_and_full(stage: Stage, *, stay: float | None) -> tuple[Running, list[Worker], Worker, Gates]:
    """Two workers; the one that holds LONG is full. It was learnt that computing it takes several seconds."""
    gates = Gates()
    gates.open()
    workers = [await stage.worker(answer=gates) for _ in range(2)]
    running = await stage.gateway(*workers, limits={"worker_in_flight": 1})
    first = await ask(running.port, post(chat(LONG)))
    warm = next(worker for worker in workers if worker.id == first.one("x-router-worker"))
    for seat in running.seats.values():
        seat.load.pace = 1000.0
    running.house.patience.forget(warm.id)
    if stay is not None:
        running.house.patience.stayed(warm.id, stay)
    gates.shut()
    gates.asking.append(asyncio.ensure_future(ask(running.port, post(chat(LONG)))))
    await eventually(lambda: warm.running == 1)
    return running, workers, warm, gates


async def test_it_waits_for_its_warm_worker_where_that_is_quicker(stage: Stage) -> None:
    running, workers, warm, gates = await warm_and_full(stage, stay=1.0)
    patient = asyncio.ensure_future(ask(running.port, post(chat(LONG))))
    await eventually(lambda: len(running.house.room) == 1)
    other = asyncio.ensure_future(ask(running.port, post(chat("something else"))))
    cold = next(worker for worker in workers if worker is not warm)
    await eventually(lambda: cold.running == 1)  # one that has no cause to wait goes past it
    gates.open()
    answer = await patient
    assert (answer.status, answer.one("x-router-worker")) == (200, warm.id)
    gates.asking.append(other)
    await gates.all(200)
    assert (await running.metrics())['prefix_router_warm_waits_total{got="true"}'] == 1


@pytest.mark.parametrize("stay", [None, 500.0], ids=["not known", "slow"])
async def test_it_goes_elsewhere_where_waiting_is_slower_or_nothing_is_known(stage: Stage, stay: float | None) -> None:
    running, gates = (await warm_and_full(stage, stay=stay))[::3]
    gates.asking.append(asyncio.ensure_future(ask(running.port, post(chat(LONG)))))
    await eventually(lambda: [worker.running for worker in stage.workers] == [1, 1])
    answers = await gates.all(200)
    assert {answer.one("x-router-worker") for answer in answers} == {worker.id for worker in stage.workers}
    assert not running.told(Queued)


async def test_it_waits_no_longer_than_it_hoped_to_gain(stage: Stage) -> None:
    running, gates = (await warm_and_full(stage, stay=0.01))[::3]
    for seat in running.seats.values():
        seat.load.pace = 20_000.0  # computing it anew takes a few tenths of a second
    gates.asking.append(asyncio.ensure_future(ask(running.port, post(chat(LONG)))))
    await eventually(lambda: [worker.running for worker in stage.workers] == [1, 1])
    await gates.all(200)
    assert [event.warm for event in running.told(Queued)] == [False]


@pytest.mark.parametrize("most", [None, 5])
async def test_how_long_requests_stay_is_learnt_where_there_are_limits(stage: Stage, most: int | None) -> None:
    worker = await stage.worker(answer=reply(delay=0.05))
    running = await stage.gateway(worker, limits={"worker_in_flight": most})
    assert (await ask(running.port, post())).status == 200
    assert (worker.id in running.house.patience._stays) is (most is not None)


# Rates.


async def test_a_caller_beyond_its_requests_a_minute_is_told_when_to_come_back(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, limits={"caller": {"requests_per_minute": 3}})
    assert [(await ask(running.port, post())).status for _ in range(3)] == [200] * 3
    answer = await ask(running.port, post())
    assert (answer.status, answer.code, answer.json()["error"]["type"]) == (429, "rate_limited", "rate_limit_error")
    assert 18 <= int(answer.one("retry-after") or 0) <= 20
    assert "3 requests a minute" in answer.json()["error"]["message"]
    assert worker.started == 3
    metrics = await running.metrics()
    assert metrics['prefix_router_rate_limited_total{kind="requests"}'] == 1
    assert metrics['prefix_router_rejected_total{code="rate_limited"}'] == 1
    running.house.accounts._accounts.clear()


async def test_each_key_counts_for_itself_and_may_have_rates_of_its_own(stage: Stage) -> None:
    worker = await stage.worker()
    keys = [
        {"tenant": "red", "key": "one"},
        {"tenant": "red", "key": "two"},
        {"tenant": "red", "key": "more", "rates": {"requests_per_minute": 5}},
        {"tenant": "red", "key": "any", "rates": {}},
    ]
    running = await stage.gateway(worker, auth={"api_keys": keys}, limits={"caller": {"requests_per_minute": 2}})
    stage.headers = [("authorization", "Bearer any")]
    for key, most in (("one", 2), ("two", 2), ("more", 5), ("any", 8)):
        statuses = [(await ask(running.port, post(headers=[("x-api-key", key)]))).status for _ in range(8)]
        assert statuses == [200] * most + [429] * (8 - most)


async def test_prompt_tokens_are_counted_and_corrected_by_what_the_worker_reported(stage: Stage) -> None:
    usage = b'{"object": "answer", "usage": {"prompt_tokens": 10, "completion_tokens": 1}}'
    worker = await stage.worker(answer=reply(usage))
    running = await stage.gateway(worker, limits={"caller": {"prompt_tokens_per_minute": 150}})
    body = chat("words " * 60)  # about ninety tokens by estimate, and ten as it turns out
    for _ in range(2):
        assert (await ask(running.port, post(body))).status == 200
    worker.answer = reply(b'{"object": "answer", "usage": {"prompt_tokens": 500, "completion_tokens": 1}}')
    running.house.accounts._accounts.clear()
    assert (await ask(running.port, post(body))).status == 200
    answer = await ask(running.port, post(body))
    assert (answer.status, answer.code) == (429, "rate_limited")
    assert int(answer.one("retry-after") or 0) > 120
    assert (await running.metrics())['prefix_router_rate_limited_total{kind="prompt_tokens"}'] == 1
    worker.answer = reply()
    running.house.accounts._accounts.clear()


async def test_the_prompt_of_a_request_that_found_no_place_is_given_back(stage: Stage) -> None:
    body = chat("words " * 60)
    caller = {"prompt_tokens_per_minute": 200}
    running, _, gates = await busy(stage, queue={"max": 0}, limits={"caller": caller})
    for _ in range(10):
        assert (await ask(running.port, post(body))).code == "overloaded"
    await gates.all(200)
    assert (await ask(running.port, post(body))).status == 200
    running.house.accounts._accounts.clear()


async def test_without_rates_nothing_is_counted(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker())
    for body in (HELLO, STREAM):
        assert (await ask(running.port, post(body))).status == 200
    assert len(running.house.accounts) == 0
    assert not running.house.counts_callers


async def test_a_stream_s_usage_corrects_too(stage: Stage) -> None:
    last = b'data: {"object": "chat.completion.chunk", "choices": [], "usage": {"prompt_tokens": 400}}\n\n'
    worker = await stage.worker(answer=stream(event("a"), last, DONE))
    running = await stage.gateway(worker, limits={"caller": {"prompt_tokens_per_minute": 100}})
    assert (await ask(running.port, post(STREAM))).status == 200
    assert (await ask(running.port, post(STREAM))).status == 429
    running.house.accounts._accounts.clear()


async def test_new_limits_count_at_once(stage: Stage) -> None:
    gates = Gates()
    worker = await stage.worker(answer=gates)
    running = await stage.gateway(worker, limits={"worker_in_flight": 1})
    gates.asking = [asyncio.ensure_future(ask(running.port, post())) for _ in range(4)]
    await eventually(lambda: len(running.house.room) == 3)
    settings = running.house.settings
    limits = settings.limits.model_copy(update={"worker_in_flight": 3})
    running.house.adopt(settings.model_copy(update={"limits": limits}))
    await eventually(lambda: worker.running == 3)
    assert len(running.house.room) == 1
    await gates.all(200)
