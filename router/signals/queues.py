"""Polled queues: how many requests wait at each worker, whoever sent them, and how much its cache holds.

One's own counts are exact and at once, but say nothing of what others send. So where several processes or replicas
send to the same workers, every worker's metrics are read a few times a second, with jitter so that the replicas do not
look at the same moments. What is too old counts as unknown, never as idle. Where nobody else sends, only the cache's
size is read, now and then.

The polls use connections of their own, so that they never wait behind streams; there is at most one at a time for each
worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from router.contracts import EngineReader
from router.core.fleet import Seat
from router.core.mind import Mind
from router.errors import AttemptError
from router.proxy.exchange import Connection
from router.proxy.headers import Headers
from router.proxy.resolve import Resolver
from router.proxy.sweep import Sweep
from router.proxy.upstream import Limits, Pool, Waiting
from router.proxy.worker_tls import WorkerContexts

JITTER = 0.2  # of the interval, either way
LASTING = 3.0  # intervals that a look counts as known
RARELY = 15.0  # seconds between two looks where only the cache's size is wanted
PATIENCE = 1.0  # seconds for a connection, an answer, and each piece of it
WHOLE = 5.0  # seconds for all of it
MOST_BYTES = 8 << 20  # of an answer; with more the connection is closed


class Poll:
    """Looks at one worker's queue until it is stopped. It is the receiver of its own answers."""

    def __init__(
        self, seat: Seat, mind: Mind, read: EngineReader, pool: Pool, interval: float, dice: Random,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self.seat = seat
        self.looks = self.failed = 0
        self._mind, self._read, self._pool, self._dice, self._clock = mind, read, pool, dice, clock
        self._interval = interval
        self._head = b"GET %s/metrics%s\r\n" % (pool.base_path, pool.greeting)
        self._pieces: list[bytes] = []
        self._size = 0
        self._good = False
        self.connection: Connection | Waiting | None = None
        self._timer = asyncio.get_running_loop().call_later(dice.random() * min(self._pause, 1.0), self._look)

    @property
    def _pause(self) -> float:
        return self._interval or RARELY

    def stop(self) -> None:
        self._timer.cancel()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.cancel()
        self._pool.close()

    def _look(self) -> None:
        self._pieces, self._size, self._good = [], 0, False
        self._timer = asyncio.get_running_loop().call_later(WHOLE, self._give_up)
        self.connection = self._pool.send(self._head, b"", self, self._clock())

    def _give_up(self) -> None:
        """It sends too much, or for too long."""
        self.failed += 1
        if self.connection is not None:
            self.connection.cancel()
        self._again()

    def _again(self) -> None:
        self._timer.cancel()
        self.connection = None
        pause = self._pause * self._dice.uniform(1 - JITTER, 1 + JITTER)
        self._timer = asyncio.get_running_loop().call_later(pause, self._look)

    # The answer comes.

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        self._good = status == 200

    def on_body(self, pieces: list[bytes]) -> None:
        self._size += sum(map(len, pieces))
        if self._size > MOST_BYTES:
            self._give_up()
        elif self._good:
            self._pieces += pieces

    def on_read(self) -> None:
        """More comes."""

    def on_end(self) -> None:
        if self._good:
            self.looks += 1
            report = self._read(b"".join(self._pieces))
            if report.room is not None:
                self._mind.holders.room(self.seat.id, report.room)
            if report.waiting is not None and self._interval:
                self._mind.hear_queue(self.seat, report.waiting, self._clock(), LASTING * self._interval)
        else:
            self.failed += 1
        self._again()

    def on_failure(self, failure: AttemptError) -> None:
        self.failed += 1
        self._again()


class Queues:
    """The polls of all workers. `interval`: seconds between two looks at a queue; 0: only the cache's size is read."""

    def __init__(
        self, mind: Mind, read: EngineReader, interval: float, sweep: Sweep, tls: WorkerContexts, dice: Random,
        names: Resolver | None = None,
    ) -> None:  # fmt: skip
        self._mind, self._read, self._interval = mind, read, interval
        self._sweep, self._tls, self._dice, self._names = sweep, tls, dice, names
        self._polls: dict[Seat, Poll] = {}

    def follow(self, seat: Seat) -> None:
        self.leave(seat)
        limits, tls = Limits(PATIENCE, PATIENCE, PATIENCE), self._tls.context(seat.worker)
        pool = Pool(seat.worker, self._sweep, limits, tls, names=self._names)
        self._polls[seat] = Poll(seat, self._mind, self._read, pool, self._interval, self._dice, self._sweep.clock)

    def leave(self, seat: Seat) -> None:
        poll = self._polls.pop(seat, None)
        if poll is not None:
            poll.stop()

    def close(self) -> None:
        for seat in list(self._polls):
            self.leave(seat)
