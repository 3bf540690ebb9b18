"""Polled queues: what workers say of how many wait there, whoever sent them, and what nonsense they may answer."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from router.clock import monotonic
from router.core.fleet import Fleet, Seat
from router.core.mind import FIRST_WORK, Mind
from router.dialects._engine_metrics import engine_report
from router.proxy.sweep import Sweep
from router.proxy.worker_tls import WorkerContexts
from router.signals import queues as module
from router.signals.queues import JITTER, LASTING, MOST_BYTES, Poll, Queues
from router.types import worker_from_url
from tests.support.client import post
from tests.support.gateway import Stage, ask, eventually
from tests.support.worker import Answer, Worker, reply

TLS = WorkerContexts(ssl.create_default_context())
OFTEN = 0.02


def waiting(many: int) -> bytes:
    return b'# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine="0"} %d.0\n' % many


CACHE = b'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n'


class Desk:
    """Workers that are looked at, and what the mind believes of them."""

    def __init__(self, interval: float = OFTEN, dice: Random | None = None) -> None:
        self.fleet = Fleet()
        self.mind = Mind(self.fleet, None)  # type: ignore[arg-type]
        self.sweep = Sweep(monotonic, 0.02)
        self.queues = Queues(self.mind, engine_report, interval, self.sweep, TLS, dice or Random(7))
        self.workers: list[Worker] = []

    async def worker(self, metrics: bytes | Answer = b"", **switches: Any) -> tuple[Worker, Seat]:
        made = await Worker(metrics=metrics, **switches).listen()
        self.workers.append(made)
        return made, self.follow(made.url)

    def follow(self, url: str, **fields: Any) -> Seat:
        known = [seat.worker for seat in self.fleet.seats.values()]
        (seat,) = self.fleet.reconcile([*known, worker_from_url(url, **fields)]).joined
        self.queues.follow(seat)
        return seat

    def poll(self, seat: Seat) -> Poll:
        return self.queues._polls[seat]

    async def close(self) -> None:
        self.queues.close()
        for each in self.workers:
            await each.close()


Made = Callable[..., Desk]


@pytest.fixture
async def made(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Made]:
    """Desks, at whose end no task, timer or connection of the polls may be left."""
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    before = asyncio.all_tasks()
    desks: list[Desk] = []

    def make(*arguments: Any, **options: Any) -> Desk:
        desks.append(Desk(*arguments, **options))
        return desks[-1]

    yield make
    for desk in desks:
        polls = list(desk.queues._polls.values())
        await desk.close()
        assert desk.queues._polls == {}
        assert all(poll._timer.cancelled() for poll in polls)
        await eventually(lambda desk=desk: len(desk.sweep) == 0, "a connection is left")
        await eventually(lambda: asyncio.all_tasks() <= before | {asyncio.current_task()}, "a task is left")


def strangers(seat: Seat) -> float:
    """How many requests of others are believed to wait there."""
    return seat.load.wait(monotonic()) / FIRST_WORK


# What is read.


async def test_requests_of_strangers_that_wait_there_are_a_wait(made: Made) -> None:
    desk = made()
    worker, seat = await desk.worker(waiting(3))
    _, idle = await desk.worker(waiting(0))
    await eventually(lambda: strangers(seat) == 3)
    assert strangers(idle) == 0
    worker.metrics = waiting(8)
    await eventually(lambda: strangers(seat) == 8)
    worker.metrics = waiting(0)
    await eventually(lambda: strangers(seat) == 0)


async def test_ones_own_requests_are_not_counted_twice(made: Made) -> None:
    desk = made(30.0)
    _, seat = await desk.worker()
    leases = [seat.load.charge(100.0, 0.0, streaming=True) for _ in range(2)]
    desk.mind.hear_queue(seat, 2, 0.0, 60.0)
    assert seat.load.wait(1.0) == 200.0, "those that wait are our own"
    desk.mind.hear_queue(seat, 5, 0.0, 60.0)
    assert seat.load.wait(1.0) == 200.0 + 3 * FIRST_WORK
    seat.load.hear_siblings(4, 2, 50.0)
    desk.mind.hear_queue(seat, 5, 0.0, 60.0)
    assert seat.load.wait(1.0) == 250.0 + FIRST_WORK, "and those of our siblings are known too"
    for lease in leases:
        lease.release()


async def test_own_requests_that_wait_at_the_worker_add_nothing_to_the_wait(made: Made) -> None:
    desk = made()
    worker, seat = await desk.worker(waiting(4))
    leases = [seat.load.charge(100.0, monotonic(), streaming=True) for _ in range(4)]
    seen = len(worker.scrapes)
    await eventually(lambda: len(worker.scrapes) > seen + 2)
    assert seat.load.wait(monotonic()) == 400.0
    for lease in leases:
        lease.release()


async def test_a_look_that_is_too_old_is_unknown_and_not_idle_or_busy(made: Made) -> None:
    desk = made()
    worker, seat = await desk.worker(waiting(9))
    await eventually(lambda: strangers(seat) == 9)
    worker.metrics = reply(stop=-1, ending="hang")
    await eventually(lambda: strangers(seat) == 0)
    assert seat.load.queue_until <= monotonic()
    worker.metrics = waiting(2)
    await eventually(lambda: strangers(seat) == 2, "and it is known again")


async def test_a_look_counts_for_some_intervals(made: Made) -> None:
    desk = made(0.5)
    _, seat = await desk.worker(waiting(9))
    await eventually(lambda: strangers(seat) == 9)
    left = seat.load.queue_until - monotonic()
    assert 0 < left <= LASTING * 0.5


async def test_the_size_of_the_cache_is_believed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = made()
    rooms: dict[str, float] = {}
    monkeypatch.setattr(desk.mind.holders, "room", rooms.__setitem__)
    _, seat = await desk.worker(CACHE)
    await eventually(lambda: rooms == {seat.id: 1600.0})
    assert seat.load.queue_until < 0, "of its queue it said nothing"


async def test_where_nobody_else_sends_only_the_caches_size_is_read_and_seldom(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = made(0.0)
    rooms: dict[str, float] = {}
    monkeypatch.setattr(desk.mind.holders, "room", rooms.__setitem__)
    worker, seat = await desk.worker(CACHE + waiting(9))
    await eventually(lambda: rooms == {seat.id: 1600.0})
    await asyncio.sleep(0.3)
    assert strangers(seat) == 0
    assert len(worker.scrapes) == 1


# How it asks.


async def test_it_asks_on_one_kept_connection_with_the_workers_key_and_path(made: Made) -> None:
    desk = made()
    worker = await Worker(metrics=waiting(1), key="its-key").listen()
    desk.workers.append(worker)
    seat = desk.follow(f"{worker.url}/base", api_key="its-key")
    await eventually(lambda: desk.poll(seat).looks > 5)
    assert {seen.target for seen in worker.scrapes} == {b"/base/metrics"}
    assert {seen.one("authorization") for seen in worker.scrapes} == {b"Bearer its-key"}
    assert {seen.one("host") for seen in worker.scrapes} == {worker.id.encode()}
    assert worker.accepted == 1


async def test_there_is_never_more_than_one_look_at_a_time(made: Made) -> None:
    desk = made(0.001)
    worker, seat = await desk.worker(reply(waiting(1), delay=0.05))
    await eventually(lambda: desk.poll(seat).looks > 5)
    assert worker.most_at_once <= 1
    assert worker.accepted == 1


class Noted(Random):
    """Dice that write down between what they were thrown."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.between: list[tuple[float, float]] = []

    def uniform(self, a: float, b: float) -> float:
        self.between.append((a, b))
        return super().uniform(a, b)


async def test_looks_are_jittered_so_that_replicas_do_not_look_together(made: Made) -> None:
    firsts, pauses = [], []
    for seed in (1, 2):
        dice = Noted(seed)
        desk = made(10.0, dice)
        now = asyncio.get_running_loop().time()
        _, seat = await desk.worker(waiting(1))
        firsts.append(desk.poll(seat)._timer.when() - now)
        desk.poll(seat)._again()
        pauses.append(desk.poll(seat)._timer.when() - now)
        assert dice.between == [(1 - JITTER, 1 + JITTER)]
    assert all(0 <= first < 1.5 for first in firsts), "the first look is soon"
    assert all(10 * (1 - JITTER) <= pause < 10 * (1 + JITTER) + 1 for pause in pauses)
    assert abs(firsts[0] - firsts[1]) > 0.01
    assert abs(pauses[0] - pauses[1]) > 0.01


# What may be answered.

USELESS = {
    "404": reply(b'{"detail": "Not Found"}', 404),
    "500 with the text": reply(waiting(9), 500),
    "a page": reply(b"<html>" + b"x" * 100_000),
    "nothing": reply(b""),
    "bytes": reply(bytes(range(256)) * 50),
    "no HTTP": Answer(raw=b"\x00\x01 garbage\r\n\r\n", keep_alive=False),
    "a cut body": reply(waiting(9), length=10_000, stop=1),
    "a reset": reply(stop=-1, ending="reset"),
    "a hang before the head": reply(stop=-1, ending="hang"),
    "a hang within the body": reply(waiting(9), length=10_000, stop=1, ending="hang"),
    "a number too large": reply(b"vllm:num_requests_waiting 1e300\n"),
    "no number": reply(b"vllm:num_requests_waiting NaN\n"),
    "a redirect": reply(b"", 302, ("location", "/elsewhere")),
}


@pytest.mark.parametrize("name", USELESS)
async def test_a_useless_answer_means_nothing_and_the_next_one_counts(made: Made, name: str) -> None:
    desk = made()
    worker, seat = await desk.worker(USELESS[name])
    await eventually(lambda: len(worker.scrapes) >= 3, "it goes on asking")
    assert strangers(seat) == 0
    assert seat.load.queue_until < 0
    worker.metrics = waiting(5)
    await eventually(lambda: strangers(seat) == 5)


@pytest.mark.parametrize("status", [200, 404])
async def test_an_endless_answer_is_cut_off_and_not_kept(
    made: Made, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 200_000)
    desk = made()
    piece = b"x" * 10_000
    endless = Answer(status=status, framing="chunked", pieces=[piece] * 20_000)
    worker, seat = await desk.worker(endless)
    poll = desk.poll(seat)
    await eventually(lambda: poll.failed >= 2)
    assert worker.sent < 20 * poll.failed * MOST_BYTES
    assert sum(map(len, poll._pieces)) <= 200_000
    worker.metrics = waiting(5)
    await eventually(lambda: strangers(seat) == 5)


async def test_a_large_answer_is_read_whole(made: Made) -> None:
    """Engines with many histograms say some hundred kilobytes."""
    desk = made()
    lines = b"".join(b'vllm:time_bucket{le="%d"} 1.0\n' % at for at in range(50_000))
    _, seat = await desk.worker(Answer(framing="chunked", pieces=(lines, waiting(6))))
    await eventually(lambda: strangers(seat) == 6)


async def test_an_answer_that_drips_for_ever_is_given_up(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHOLE", 0.3)
    desk = made()
    worker, seat = await desk.worker(Answer(framing="chunked", pieces=[b"# \n"] * 10_000, gap=0.05))
    await eventually(lambda: desk.poll(seat).failed >= 2)
    worker.metrics = waiting(5)
    await eventually(lambda: strangers(seat) == 5)


async def test_a_worker_that_refuses_is_asked_again_until_it_is_there(made: Made) -> None:
    desk = made()
    worker, seat = await desk.worker(waiting(4))
    await eventually(lambda: strangers(seat) == 4)
    await worker.refuse()
    await eventually(lambda: desk.poll(seat).failed >= 3)
    await eventually(lambda: strangers(seat) == 0)  # what was heard last is believed for a while
    await worker.listen()
    await eventually(lambda: strangers(seat) == 4)


async def test_a_kept_connection_that_the_worker_closed_is_made_anew(made: Made) -> None:
    desk = made(0.1)
    worker, seat = await desk.worker(waiting(4), idle_close=0.01)
    await eventually(lambda: len(worker.scrapes) > 3)
    assert strangers(seat) == 4


# Coming and going.


async def test_a_worker_that_left_is_looked_at_no_more(made: Made) -> None:
    desk = made()
    worker, seat = await desk.worker(waiting(1))
    await eventually(lambda: worker.scrapes)
    desk.queues.leave(seat)
    await asyncio.sleep(0.05)
    seen = len(worker.scrapes)
    await asyncio.sleep(0.2)
    assert len(worker.scrapes) == seen
    desk.queues.leave(seat)  # again is no harm


async def test_a_worker_that_was_updated_is_asked_as_it_now_is(made: Made) -> None:
    desk = made()
    worker = await Worker(metrics=waiting(2), key="new").listen()
    desk.workers.append(worker)
    seat = desk.follow(worker.url, api_key="old")
    await eventually(lambda: desk.poll(seat).failed > 1)
    desk.fleet.reconcile([worker_from_url(worker.url, api_key="new")])
    desk.queues.follow(seat)
    assert len(desk.queues._polls) == 1
    await eventually(lambda: strangers(seat) == 2)


@pytest.mark.parametrize("metrics", [waiting(1), reply(stop=-1, ending="hang"), reply(waiting(1), delay=5.0)])
async def test_closing_ends_a_look_under_way(made: Made, metrics: bytes | Answer) -> None:
    desk = made()
    worker, _ = await desk.worker(metrics)
    await eventually(lambda: worker.scrapes)
    desk.queues.close()
    seen = len(worker.scrapes)
    await asyncio.sleep(0.2)
    assert len(worker.scrapes) == seen


async def test_closing_while_it_connects_leaves_nothing(made: Made) -> None:
    desk = made()
    desk.follow("http://127.0.0.1:9")
    await asyncio.sleep(OFTEN)
    desk.queues.close()


# In a gateway.


async def test_a_gateway_looks_on_connections_of_their_own_that_no_stream_holds_up(stage: Stage) -> None:
    worker = await stage.worker(metrics=waiting(2), answer=reply(delay=1.0))
    running = await stage.gateway(worker, signals={"queue_seconds": 0.05})
    asked = asyncio.create_task(ask(running.port, post()), name="worker is asked")
    await eventually(lambda: worker.running == 1)
    seen = len(worker.scrapes)
    await eventually(lambda: len(worker.scrapes) > seen + 2)
    assert running.house.busy_connections() == 1
    assert (await asked).status == 200


async def test_a_gateway_alone_does_not_look_at_queues(stage: Stage) -> None:
    worker = await stage.worker(metrics=waiting(50))
    running = await stage.gateway(worker)
    await eventually(lambda: worker.scrapes)
    await asyncio.sleep(0.1)
    assert len(worker.scrapes) == 1
    assert running.seat(worker).load.wait(monotonic()) == 0.0
