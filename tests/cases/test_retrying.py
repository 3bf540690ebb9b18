"""56: one request is one generation: every kind of failure, in every place, with every limit, counted at workers."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from router.core.health import PROBE_OK
from tests.support.client import HELLO, STREAM, Client, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, Answer, Worker, event, reply, stream

BOTH = pytest.mark.parametrize("body", [HELLO, STREAM], ids=["plain", "streaming"])
GOOD = reply(b'{"good": true}')
THREE = (event("1"), event("2"), event("3"))
FAILURES: dict[str, Answer | None] = {
    "refuses": None,
    "503": reply(b'{"error": "busy"}', 503),
    "429": reply(b'{"error": "slow down"}', 429, ("retry-after", "1")),
    "503 in pieces": stream(b'{"error":', b' "busy"}', status=503),
    "503 that breaks": stream(b'{"error":', b"x", status=503, stop=1, ending="reset"),
    "500": reply(b'{"error": "CUDA"}', 500),
    "502": reply(b"<h1>no</h1>", 502),
    "504": reply(b"{}", 504),
    "400": reply(b"{}", 400),
    "closes": reply(stop=-1),
    "resets": reply(stop=-1, ending="reset"),
    "resets after its head": stream(stop=0, ending="reset"),
    "resets after three events": stream(*THREE, stop=3, ending="reset"),
    "closes after three events": stream(*THREE, stop=3),
    "good": GOOD,
}
BUSY = ("503", "429", "503 in pieces", "503 that breaks")
CUT = ("resets after its head", "resets after three events", "closes after three events")
BREAKS = ("closes", "resets")


def expected(kinds: Sequence[str], most: int) -> tuple[int, list[int], bool]:
    """By the law alone: the status, how often each worker is asked, and whether the answer is whole."""
    asked = [0] * len(kinds)
    said_busy: int | None = None
    counted = 0
    for at, kind in enumerate(kinds):
        if kind == "refuses":
            continue
        asked[at] = 1
        if kind in BUSY:
            counted += 1
            if counted < most and at + 1 < len(kinds):
                said_busy = int(kind[:3])
                continue
            return int(kind[:3]), asked, kind != "503 that breaks"
        if kind in BREAKS:
            return 502, asked, True
        return (200, asked, kind not in CUT) if kind == "good" or kind in CUT else (int(kind), asked, True)
    return said_busy or 503, asked, True


class Fleet:
    """Four workers that are asked in order, and as good as new before each request."""

    def __init__(self, running: Running, workers: list[Worker]) -> None:
        self.running, self.workers = running, workers

    @classmethod
    async def of(cls, stage: Stage, count: int, most: int) -> "Fleet":
        workers = [await stage.worker() for _ in range(count)]
        named = [{"url": worker.url, "id": f"w{at}"} for at, worker in enumerate(workers)]
        health = {"interval_seconds": 60, "unhealthy_after": 1000, "outliers": {"most_ejected": 0.0}}
        routing = {"policy": "tests.support.in_order", "max_tries": most}
        return cls(await stage.gateway(*named, routing=routing, health=health), workers)

    async def play(self, kinds: Sequence[str]) -> None:
        for worker in self.workers:  # a kept connection's end may mean that it was stale, which is another story
            await worker.hang_up()
        pools = self.running.house._pools.values()
        await eventually(lambda: not any(pool._idle for pool in pools))
        for worker, kind in zip(self.workers, kinds, strict=True):
            answer = FAILURES[kind]
            if answer is None:
                await worker.refuse()
            elif worker._server is None:
                await worker.listen()
            worker.answer = answer or GOOD
        for seat in self.running.seats.values():
            seat.health.pressed_until = 0.0
            for _ in range(3):
                self.running.house.signal(seat, PROBE_OK)

    def counts(self) -> list[int]:
        return [len(worker.requests) for worker in self.workers]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("most", [1, 2, 3, 5])
async def test_the_law_holds_for_every_row_of_failures(stage: Stage, count: int, most: int) -> None:
    """Rows drawn at random; every kind stands first in some, so that nothing hides behind an earlier end."""
    dice = Random(100 * count + most)
    fleet = await Fleet.of(stage, count, most)
    going_on = ["refuses", *BUSY]  # most rows go on for a while
    names = list(FAILURES)
    for at in range(2 * len(names)):
        row = [names[at % len(names)], *[dice.choice(going_on * 3 + names) for _ in range(count - 1)]][:count]
        await fleet.play(row)
        asked_before = fleet.counts()
        begun = sum(worker.started for worker in fleet.workers)
        status, asked, whole = expected(row, most)
        got = await ask(fleet.running.port, post(STREAM if at % 2 else HELLO))
        told = f"{row}, at most {most} tries"
        assert [now - before for now, before in zip(fleet.counts(), asked_before, strict=True)] == asked, told
        assert (got.status, got.whole) == (status, whole), told
        generations = sum(worker.started for worker in fleet.workers) - begun
        assert generations <= 1, told
        assert sum(asked) <= most, told
        if status == 200 and whole:
            assert got.body == b'{"good": true}', told
            assert generations == 1


@BOTH
@pytest.mark.parametrize("most", [1, 2, 5])
async def test_one_that_is_too_slow_is_told_to_stop_and_nobody_begins_anew(
    stage: Stage, body: bytes, most: int
) -> None:
    workers = [await stage.worker(answer=reply(stop=-1, ending="hang")), await stage.worker()]
    named = [{"url": worker.url, "id": f"w{at}"} for at, worker in enumerate(workers)]
    routing = {"policy": "tests.support.in_order", "max_tries": most}
    running = await stage.gateway(*named, routing=routing, timeouts={"first_byte_seconds": 0.3})
    got = await ask(running.port, post(body))
    assert (got.status, got.code) == (504, "worker_timeout")
    await eventually(lambda: workers[0].aborted == 1, "the first generation goes on")
    await asyncio.sleep(0.2)
    assert [worker.started for worker in workers] == [1, 0]


async def test_a_storm_of_failures_begins_no_generation_twice(stage: Stage) -> None:
    """A hundred and fifty at once, over workers of every kind: as many generations at most as requests."""
    dice = Random(3)
    kinds = [answer for answer in FAILURES.values() if answer is not None]
    workers = [await stage.worker(answer=lambda _: dice.choice(kinds)) for _ in range(5)]
    running = await stage.gateway(*workers, health={"unhealthy_after": 10_000})
    count = 150

    async def one(at: int) -> int:
        client = await Client.connect(running.port)
        body = b'{"model": "m", "stream": true, "prompt": "%d %s"}' % (at, b"x" * dice.randrange(2000))
        got = await client.ask(post(body, "/v1/completions"))
        await client.close()
        return got.status

    for begin in range(0, count, 30):
        await asyncio.gather(*[one(at) for at in range(begin, begin + 30)])
        for seat in running.seats.values():
            seat.health.pressed_until = 0.0
    await stage.at_rest(running)
    tries = [told.tries for told in running.finished]
    assert len(tries) == count
    assert max(tries) <= 5
    assert sum(worker.started for worker in workers) <= count


async def test_what_the_client_has_read_is_never_sent_twice(stage: Stage) -> None:
    """A stream that breaks after three events is not begun anew by another worker: the text is there once."""
    first = await stage.worker(answer=stream(*THREE, stop=3, ending="reset"))
    second = await stage.worker(answer=stream(*THREE, DONE))
    routing = {"policy": "tests.support.in_order"}
    named = [{"url": first.url, "id": "w0"}, {"url": second.url, "id": "w1"}]
    running = await stage.gateway(*named, routing=routing)
    got = await ask(running.port, post(STREAM))
    assert (got.whole, got.body) == (False, b"".join(THREE))
    assert second.requests == []


async def test_a_fleet_that_refuses_costs_each_request_one_look_at_each_worker(stage: Stage) -> None:
    """Twelve workers, none listens: nobody is tried twice, and the client is told at once."""
    workers = [await stage.worker() for _ in range(12)]
    running = await stage.gateway(*workers, health={"interval_seconds": 60, "unhealthy_after": 1000})
    for worker in workers:
        await worker.refuse()
    for turn in range(1, 4):
        got = await ask(running.port, post())
        assert (got.status, got.code) == (503, "no_ready_worker")
        assert running.finished[-1].tries <= 12, turn


async def test_a_client_that_retries_by_itself_is_the_only_one_who_does(stage: Stage) -> None:
    """Five requests of the client's are five at the worker, whatever the worker answers."""
    worker = await stage.worker(answer=reply(b"{}", 503))
    running = await stage.gateway(worker)
    client = await stage.client(running)
    for count in range(1, 6):
        assert (await client.ask()).status == 503
        assert len(worker.requests) == count
