"""A request's own time limit, and everybody's: what ends, what the client is told, and what the worker hears."""

import asyncio
from typing import Any

import pytest

from tests.support.client import HELLO, STREAM, post
from tests.support.gates import Gates
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import Worker, event, reply, stream

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
HANGS = reply(stop=-1, ending="hang")


def within(seconds: str, body: bytes = HELLO, path: str = CHAT) -> bytes:
    return post(body, path, [("X-Request-Timeout", seconds)])


async def hanging(stage: Stage, **settings: Any) -> tuple[Running, Worker]:
    worker = await stage.worker(answer=HANGS)
    return await stage.gateway(worker, **settings), worker


def heal(worker: Worker) -> None:
    worker.answer = reply()


def at_peace(running: Running, worker: Worker) -> None:
    """The worker was not blamed, and nothing is watched for a request that is over."""
    seat = running.seat(worker)
    assert seat.health.state.value == "ready"
    assert seat.health.calm()
    assert not [each for each in running.house.sweep if type(each).__name__ == "Journey"]


@pytest.mark.parametrize("body", [HELLO, STREAM], ids=["plain", "streaming"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_without_an_answer_in_time_it_is_a_504_in_the_dialect_s_form(
    stage: Stage, body: bytes, path: str
) -> None:
    running, worker = await hanging(stage)
    answer = await ask(running.port, within("0.3", body, path))
    assert answer.status == 504
    error = answer.json()["error"]
    assert (error["type"] == "timeout_error") if path == MESSAGES else (error["code"] == "worker_timeout")
    await eventually(lambda: worker.aborted == 1)
    at_peace(running, worker)
    metrics = await running.metrics()
    assert metrics['prefix_router_deadlines_passed_total{phase="waiting"}'] == 1
    assert metrics['prefix_router_rejected_total{code="worker_timeout"}'] == 1
    assert not any("worker_failures_total" in name for name in metrics)
    heal(worker)


async def test_a_stream_is_cut_when_its_time_is_up(stage: Stage) -> None:
    gate = asyncio.Event()
    worker = await stage.worker(answer=stream(event("a"), gate))
    running = await stage.gateway(worker)
    answer = await ask(running.port, within("0.5", STREAM))
    assert (answer.status, answer.body, answer.whole) == (200, event("a"), False)
    await eventually(lambda: worker.aborted == 1)
    at_peace(running, worker)
    assert running.finished[0].cut
    assert (await running.metrics())['prefix_router_deadlines_passed_total{phase="streaming"}'] == 1
    heal(worker)


async def test_one_that_waits_its_turn_is_told_when_its_time_is_up(stage: Stage) -> None:
    gates = Gates()
    worker = await stage.worker(answer=gates)
    running = await stage.gateway({"url": worker.url, "max_in_flight": 1})
    gates.asking.append(asyncio.ensure_future(ask(running.port, post())))
    await eventually(lambda: worker.running == 1)
    answer = await ask(running.port, within("0.3"))
    assert (answer.status, answer.code) == (504, "worker_timeout")
    assert len(running.house.room) == 0
    assert worker.started == 1
    metrics = await running.metrics()
    assert metrics['prefix_router_deadlines_passed_total{phase="queued"}'] == 1
    assert metrics['prefix_router_queue_left_total{how="gone",priority="0"}'] == 1
    await gates.all(200)


async def test_a_body_that_does_not_come_in_time_is_the_client_s_own_fault(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    await client.send(within("0.3")[:-5])
    answer = await client.answer()
    assert (answer.status, answer.code) == (408, "request_timeout")
    assert worker.started == 0


async def test_everybody_s_limit_counts_where_it_is_the_smaller(stage: Stage) -> None:
    running, worker = await hanging(stage, timeouts={"total_seconds": 0.4})
    for request in (post(), within("100")):
        assert (await ask(running.port, request)).status == 504
    at_peace(running, worker)
    heal(worker)
    assert (await ask(running.port, within("100"))).status == 200


async def test_the_worker_is_told_how_long_there_is_left(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, timeouts={"total_seconds": 50})
    for request, most in ((within("20.25"), 20.25), (within("70"), 50.0), (post(), 50.0)):
        assert (await ask(running.port, request)).status == 200
        told = float(worker.requests[-1].one("x-request-timeout") or 0)
        assert most - 10 < told <= most
    at_peace(running, worker)


async def test_without_a_limit_nothing_is_told_and_nothing_watched(stage: Stage) -> None:
    gates = Gates()
    worker = await stage.worker(answer=gates)
    running = await stage.gateway(worker)
    gates.asking.append(asyncio.ensure_future(ask(running.port, post())))
    await eventually(lambda: worker.running == 1)
    at_peace(running, worker)
    assert gates.seen[0].one("x-request-timeout") is None
    await gates.all(200)


@pytest.mark.parametrize("bad", ["", "0", "0.0", "-1", "soon", "1s", "1e3", "nan", "inf", "1,5", ".", "1" * 40])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_bad_value_is_told_with_what_is_expected(stage: Stage, bad: str, path: str) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    answer = await ask(running.port, within(bad, HELLO, path))
    assert answer.status == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert "x-request-timeout: expected" in error["message"]
    assert worker.started == 0


async def test_a_client_that_leaves_before_its_time_is_up_is_forgotten(stage: Stage) -> None:
    running, worker = await hanging(stage)
    client = await stage.client(running)
    await client.send(within("30"))
    await eventually(lambda: worker.running == 1)
    client.drop()
    await eventually(lambda: worker.aborted == 1)
    at_peace(running, worker)
    assert running.finished[0].status == 499
    heal(worker)


async def test_a_second_worker_is_told_what_is_left_then(stage: Stage) -> None:
    """The first says no after a while; what is left counts from the request's begin."""
    slow = [await stage.worker(answer=reply(b"{}", 503, delay=0.3)) for _ in range(1)]
    good = await stage.worker()
    running = await stage.gateway(slow[0], good, routing={"policy": "tests.support.in_order"})
    answer = await ask(running.port, within("30"))
    assert answer.status == 200
    told = [float(worker.requests[0].one("x-request-timeout") or 0) for worker in (slow[0], good) if worker.requests]
    assert told == sorted(told, reverse=True)
    assert len(told) == 1 or told[0] - told[1] >= 0.25
