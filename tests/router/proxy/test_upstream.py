"""The keep-alive connections to one worker."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from time import monotonic
from typing import Any

import pytest

from router.proxy.exchange import Connection
from router.proxy.sweep import Sweep
from router.proxy.upstream import MOST_IDLE, Limits, Pool
from router.types import worker_from_url
from tests.support.gateway import eventually
from tests.support.worker import Answer, Seen, Worker, reply, stream


class Noted:
    """A receiver that writes down how its exchange went."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.status: int | None = None
        self.data = b""
        self.connection: Any = None

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]], length: int | None) -> None:
        self.told.append("head")
        self.status = status

    def on_body(self, pieces: list[bytes]) -> None:
        self.told.append("body")
        self.data += b"".join(pieces)

    def on_read(self) -> None:
        self.told.append("read")

    def on_end(self) -> None:
        self.told.append("end")

    def on_failure(self, failure: Exception) -> None:
        self.told.append(type(failure).__name__)

    @property
    def over(self) -> bool:
        return bool(self.told) and self.told[-1] not in ("head", "body", "read")


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    worker = await Worker().listen()
    yield worker
    await worker.close()


@pytest.fixture
async def pool(worker: Worker) -> AsyncIterator[Pool]:
    pool = Pool(worker_from_url(worker.url), Sweep(monotonic, 0.02), Limits(5.0, 5.0, 5.0))
    yield pool
    pool.close()
    for each in list(pool.sweep):
        each.cancel()  # type: ignore[attr-defined]
    await eventually(lambda: pool.sweep._timer is None)


def send(pool: Pool, body: bytes = b"{}", *, fresh: bool = False) -> Noted:
    noted = Noted()
    head = b"POST /x%scontent-length: %d\r\n\r\n" % (pool.greeting, len(body))
    pool.send(head, body, noted, monotonic(), fresh=fresh)
    return noted


async def test_a_connection_is_opened_used_and_kept(pool: Pool, worker: Worker) -> None:
    for _ in range(3):
        noted = send(pool)
        assert pool.busy() == 1
        await eventually(lambda noted=noted: noted.over)
        assert ([told for told in noted.told if told != "read"], noted.status) == (["head", "body", "end"], 200)
        assert pool.busy() == 0
    assert worker.accepted == 1
    assert repr(pool) == f"<Pool {worker.id}, 0 busy, 1 idle>"


async def test_there_is_no_limit_on_connections(pool: Pool, worker: Worker) -> None:
    pool.limits = Limits()
    worker.answer = reply(stop=-1, ending="hang")
    notes = [send(pool) for _ in range(50)]
    await eventually(lambda: worker.running == 50)
    assert pool.busy() == 50
    assert not any(note.over for note in notes)
    for each in list(pool.sweep):
        each.cancel()  # type: ignore[attr-defined]
    await eventually(lambda: worker.aborted == 50)
    assert pool.busy() == 0


# A limit on connections.


@pytest.fixture
def few(pool: Pool) -> Pool:
    """At most two."""
    pool.go_by(Limits(5.0, 5.0, 5.0, connections=2))
    return pool


async def test_further_requests_wait_for_a_connection_in_their_order(few: Pool, worker: Worker) -> None:
    gate = asyncio.Event()
    worker.answer = stream(gate, b"{}")
    notes = [send(few, b"%d" % at) for at in range(6)]
    await eventually(lambda: worker.running == 2)
    await asyncio.sleep(0.05)
    assert (worker.accepted, repr(few)) == (2, f"<Pool {worker.id}, 2 busy, 0 idle, 4 waiting>")
    gate.set()
    await eventually(lambda: all(note.over for note in notes))
    assert [note.told[-1] for note in notes] == ["end"] * 6
    assert [int(body) for body in worker.bodies] == list(range(6))
    assert (worker.accepted, worker.most_at_once) == (2, 2)


async def test_one_that_waits_is_sent_nowhere_and_may_leave(few: Pool, worker: Worker) -> None:
    worker.answer = reply(stop=-1, ending="hang")
    held = [few.send(b"POST /x%scontent-length: 0\r\n\r\n" % few.greeting, b"", Noted(), monotonic()) for _ in "ab"]
    await eventually(lambda: worker.running == 2)
    noted = Noted()
    waiting = few.send(b"", b"", noted, monotonic())
    assert not waiting.is_open
    waiting.pause()
    waiting.resume()
    waiting.cancel()
    waiting.cancel()
    assert (noted.told, len(few.waiting)) == ([], 0)
    for each in held:
        each.cancel()
    await eventually(lambda: worker.aborted == 2)


async def test_whoever_waits_takes_the_place_of_one_that_ends_badly(few: Pool, worker: Worker) -> None:
    worker.answer = reply(stop=-1, ending="close")
    notes = [send(few) for _ in range(6)]
    await eventually(lambda: all(note.over for note in notes))
    assert [note.told for note in notes] == [["BrokenAnswer"]] * 6
    assert worker.accepted == 6


async def test_when_nobody_listens_all_that_wait_hear_of_it(few: Pool, worker: Worker) -> None:
    await worker.refuse()
    notes = [send(few) for _ in range(8)]
    await eventually(lambda: all(note.over for note in notes))
    assert {note.told[-1] for note in notes} == {"Unreachable"}


async def test_a_connection_is_its_receivers_once_it_has_one(few: Pool, worker: Worker) -> None:
    gate = asyncio.Event()
    worker.answer = stream(gate, b"{}")
    notes = [send(few) for _ in range(3)]
    await eventually(lambda: worker.running == 2)
    gate.set()
    await eventually(lambda: notes[2].over)
    assert isinstance(notes[2].connection, Connection)


async def test_a_fresh_one_takes_the_place_of_one_that_idles(few: Pool, worker: Worker) -> None:
    worker.answer = reply(delay=0.02)
    notes = [send(few), send(few)]
    await eventually(lambda: all(note.over for note in notes))
    noted = send(few, fresh=True)
    await eventually(lambda: noted.over)
    assert noted.told[-1] == "end"
    assert worker.accepted == 3


async def test_a_workers_own_limit_counts_more_and_a_higher_one_lets_in_at_once(worker: Worker) -> None:
    limits = Limits(5.0, 5.0, 5.0, connections=1)
    pool = Pool(worker_from_url(worker.url, max_connections=3), Sweep(monotonic, 0.02), limits)
    assert pool.most == 3
    other = Pool(worker_from_url(worker.url), Sweep(monotonic, 0.02), limits)
    worker.answer = reply(stop=-1, ending="hang")
    for _ in range(3):
        send(other)
    await eventually(lambda: worker.running == 1)
    other.go_by(Limits())
    await eventually(lambda: worker.running == 3)
    for each in list(other.sweep):
        each.cancel()  # type: ignore[attr-defined]
    await eventually(lambda: other.sweep._timer is None)


async def test_those_that_wait_are_turned_away_where_the_worker_is_not_well(few: Pool, worker: Worker) -> None:
    worker.answer = reply(stop=-1, ending="hang")
    notes = [send(few) for _ in range(5)]
    await eventually(lambda: worker.running == 2)
    few.turn_away()
    assert [note.told for note in notes] == [[], [], *[["NotSent"]] * 3]


async def test_a_closed_pool_serves_those_that_wait(few: Pool, worker: Worker) -> None:
    worker.answer = reply(delay=0.02)
    notes = [send(few) for _ in range(5)]
    few.close()
    await eventually(lambda: all(note.over for note in notes))
    assert {note.told[-1] for note in notes} == {"end"}


@pytest.mark.parametrize("seed", range(3))
async def test_a_storm_of_cancelled_requests_costs_no_place(few: Pool, worker: Worker, seed: int) -> None:
    """In every phase: while they wait, connect, are sent, are answered; and twice."""
    dice = Random(seed)

    def answer(_: Seen) -> Answer:
        return dice.choice((reply(), reply(delay=0.01), reply(stop=-1, ending="hang"), reply(stop=-1),
                            reply(keep_alive=False), reply(stop=0, ending="reset")))  # fmt: skip

    worker.answer = answer
    for _ in range(150):
        noted = Noted()
        head = b"POST /x%scontent-length: 2\r\n\r\n" % few.greeting
        noted.connection = few.send(head, b"{}", noted, monotonic(), fresh=dice.random() < 0.1)
        asyncio.get_running_loop().call_later(dice.random() * 0.02, leave, noted)
        if dice.random() < 0.3:
            await asyncio.sleep(dice.random() * 0.01)
        assert len(few._open) <= 2
    await eventually(lambda: not few.busy() and not few.waiting)
    worker.answer = reply()
    notes = [send(few) for _ in range(4)]
    await eventually(lambda: all(note.over for note in notes))
    assert [note.told[-1] for note in notes] == ["end"] * 4


def leave(noted: Noted) -> None:
    if not noted.over:
        noted.told.append("left")
        noted.connection.cancel()
        noted.connection.cancel()


async def test_the_one_used_last_is_used_first(pool: Pool, worker: Worker) -> None:
    worker.answer = reply(delay=0.05)
    notes = [send(pool) for _ in range(3)]
    await eventually(lambda: all(note.over for note in notes))
    last = worker.requests[-1].connection
    for _ in range(3):
        noted = send(pool)
        await eventually(lambda noted=noted: noted.over)
    assert {request.connection for request in worker.requests[3:]} == {last}


async def test_a_fresh_one_is_a_new_one(pool: Pool, worker: Worker) -> None:
    for fresh in (False, True):
        noted = send(pool, fresh=fresh)
        await eventually(lambda noted=noted: noted.over)
    assert worker.accepted == 2


async def test_one_that_the_worker_closed_is_not_used_again(pool: Pool, worker: Worker) -> None:
    noted = send(pool)
    await eventually(lambda: noted.over)
    await worker.hang_up()
    await eventually(lambda: "0 idle" in repr(pool))
    noted = send(pool)
    await eventually(lambda: noted.over)
    assert noted.told[-1] == "end"


async def test_a_closed_pool_lets_what_runs_finish_and_keeps_nothing(pool: Pool, worker: Worker) -> None:
    idle = send(pool)
    await eventually(lambda: idle.over)
    gate = asyncio.Event()
    worker.answer = reply(b"", delay=0.1)
    running = send(pool)
    await eventually(lambda: worker.running == 1)
    pool.close()
    gate.set()
    await eventually(lambda: running.over)
    assert running.told[-1] == "end"
    assert "0 idle" in repr(pool)


async def test_what_is_kept_idle_is_bounded(pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_IDLE > 100
    monkeypatch.setattr("router.proxy.upstream.MOST_IDLE", 2)
    worker.answer = reply(delay=0.05)
    notes = [send(pool) for _ in range(5)]
    await eventually(lambda: all(note.over for note in notes))
    assert "2 idle" in repr(pool)


@pytest.mark.parametrize(
    ("url", "key", "line"),
    [("http://w:1", None, b""), ("http://w:1", "k", b"authorization: Bearer k\r\n"),
     ("http://u:p@w:1", None, b"authorization: Basic dTpw\r\n"),
     ("http://u:p@w:1", "k", b"authorization: Bearer k\r\n")],
)  # fmt: skip
async def test_a_workers_credentials_stand_in_its_greeting(url: str, key: str | None, line: bytes) -> None:
    pool = Pool(worker_from_url(url, api_key=key), Sweep(monotonic), Limits())
    assert pool.greeting == b" HTTP/1.1\r\nhost: w:1\r\n" + line
    assert pool.has_credentials is bool(line)
