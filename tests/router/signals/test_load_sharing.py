"""The ledger and the table: what is charged in one process is seen by the other."""

import asyncio
from functools import partial
from typing import Any

from router.core.fleet import Fleet
from router.events import Finished
from router.signals.load_sharing import LINGER, QUIET_TICK, TICK, LoadSharing
from router.signals.load_table import Row, table_bytes
from tests.support.fleets import fleet_of, worker


class Two:
    """Two processes' ledgers over one table, on a clock that stands still."""

    def __init__(self, *others: str) -> None:
        self.now = 100.0
        memory = memoryview(bytearray(table_bytes(2)))
        self.heard = [0, 0]
        self.limited = [0, 0]
        self.fleets: list[Fleet] = [fleet_of([worker("a"), worker("b")]),
                                    fleet_of([worker(each) for each in others or ("a", "b")])]  # fmt: skip
        self.sides = [
            LoadSharing(
                Row(memory, at, 2), self.fleets[at], lambda: self.now,
                partial(self._hears, at), partial(self._limits, at),
            )
            for at in range(2)
        ]  # fmt: skip

    def _limits(self, at: int) -> None:
        self.limited[at] += 1

    def _hears(self, at: int) -> None:
        self.heard[at] += 1

    def look(self) -> None:
        for side in (*self.sides, *self.sides):
            side.look()

    def load(self, at: int, name: str) -> Any:
        return self.fleets[at].seats[name].load


def test_what_one_charges_the_other_sees_and_waits_for() -> None:
    two = Two()
    lease = two.load(0, "a").charge(500.0, two.now, streaming=True)
    two.look()
    other = two.load(1, "a")
    assert (other.elsewhere, other.waiting_elsewhere, other.charged_elsewhere) == (1, 1, 500.0)
    assert other.wait(two.now) == 500.0
    assert other.in_flight == 0
    assert two.load(1, "b").elsewhere == 0
    assert two.load(0, "a").elsewhere == 0
    lease.first_token(two.now)
    two.look()
    assert (other.elsewhere, other.waiting_elsewhere, other.charged_elsewhere) == (1, 0, 0.0)
    lease.release()
    two.look()
    assert other.elsewhere == 0


def test_when_another_has_less_at_a_worker_those_that_wait_here_may_go() -> None:
    two = Two()
    leases = [two.load(0, "a").charge(1.0, two.now, streaming=False) for _ in range(2)]
    two.look()
    assert two.heard == [0, 0]
    leases[0].release()
    two.look()
    assert two.heard == [0, 1]
    two.look()
    assert two.heard == [0, 1]


def test_each_may_know_other_workers() -> None:
    two = Two("b", "c")
    two.load(0, "b").charge(5.0, two.now, streaming=False)
    two.look()
    assert (two.load(1, "b").elsewhere, two.load(1, "c").elsewhere) == (1, 0)
    two.fleets[0].reconcile([worker("c"), worker("b")])
    two.load(0, "c").charge(5.0, two.now, streaming=False)
    two.look()
    assert (two.load(1, "b").elsewhere, two.load(1, "c").elsewhere) == (1, 1)


def test_the_load_of_a_process_that_fell_silent_is_gone_after_a_second() -> None:
    two = Two()
    two.load(0, "a").charge(5.0, two.now, streaming=False)
    two.look()
    two.now += 2.0
    two.sides[1].look()
    assert two.load(1, "a").elsewhere == 0
    two.look()
    assert two.load(1, "a").elsewhere == 1  # it was only slow


def test_of_a_worker_with_a_limit_the_others_are_told_at_once() -> None:
    two = Two()
    two.fleets[0].reconcile([worker("a", max_in_flight=3), worker("b")])
    two.look()
    for name in ("a", "b"):
        two.load(0, name).charge(5.0, two.now, streaming=False)
        two.sides[0].note(Finished("r", "/p", "m", 200, worker=name))
    two.sides[0].note(Finished("r", "/p", "m", 503))
    two.sides[1].look()
    assert (two.load(1, "a").elsewhere, two.load(1, "b").elsewhere) == (1, 0)
    two.look()
    assert (two.load(1, "a").elsewhere, two.load(1, "b").elsewhere) == (1, 1)


def test_to_be_told_of_every_request_is_asked_for_once_a_worker_has_a_limit() -> None:
    two = Two()
    two.look()
    assert two.limited == [0, 0]
    two.fleets[0].reconcile([worker("a", max_in_flight=3), worker("b")])
    two.look()
    assert two.limited == [1, 0]
    two.fleets[0].reconcile([worker("a"), worker("b", max_in_flight=3)])
    two.look()
    assert two.limited == [1, 0]


async def test_it_looks_often_while_something_is_in_flight_anywhere_and_seldom_else() -> None:
    two = Two()
    looks = [0, 0]
    for at, side in enumerate(two.sides):
        look = side.look

        def counted(at: int = at, look: Any = look) -> None:
            looks[at] += 1
            look()

        side.look = counted  # type: ignore[method-assign]
    for side in two.sides:
        side.start()
    await asyncio.sleep(8 * QUIET_TICK)
    quiet = list(looks)
    assert 2 <= quiet[0] <= 10
    lease = two.load(0, "a").charge(5.0, two.now, streaming=False)
    await asyncio.sleep(8 * QUIET_TICK)
    assert two.load(1, "a").elsewhere == 1
    assert all(looks[at] - quiet[at] > 8 * QUIET_TICK / TICK / 4 for at in range(2))
    lease.release()
    await asyncio.sleep(4 * TICK)
    assert two.load(1, "a").elsewhere == 0
    for side in two.sides:
        side.stop()
    ended = list(looks)
    await asyncio.sleep(2 * QUIET_TICK)
    assert looks == ended
    assert LINGER > QUIET_TICK
