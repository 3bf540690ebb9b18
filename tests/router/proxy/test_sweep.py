"""One timer for all limits."""

import asyncio
from math import inf

from router.proxy.sweep import Sweep
from tests.support.gateway import eventually


class Thing:
    def __init__(self, deadline: float = inf) -> None:
        self.deadline = deadline
        self.told: list[float] = []

    def overdue(self, now: float) -> None:
        self.told.append(now)
        self.deadline = inf


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_only_what_is_overdue_is_told() -> None:
    time = Time()
    sweep = Sweep(time, interval=0.01)
    early, late, never = Thing(1.0), Thing(5.0), Thing()
    for thing in (early, late, never):
        sweep.watch(thing)
    time.now = 2.0
    await eventually(lambda: early.told)
    assert (early.told, late.told, never.told) == ([2.0], [], [])
    time.now = 5.0
    await eventually(lambda: late.told)
    assert early.told == [2.0]
    for thing in (early, late, never):
        sweep.forget(thing)


async def test_it_runs_only_while_something_is_watched() -> None:
    sweep = Sweep(Time(), interval=0.01)
    assert sweep._timer is None
    thing = Thing()
    sweep.watch(thing)
    sweep.watch(thing)
    assert (len(sweep), list(sweep)) == (1, [thing])
    assert sweep._timer is not None
    sweep.forget(thing)
    sweep.forget(thing)
    await eventually(lambda: sweep._timer is None)
    again = Thing(-1.0)
    sweep.watch(again)
    await eventually(lambda: again.told)
    sweep.forget(again)


async def test_one_that_is_forgotten_by_another_in_the_same_sweep_is_not_told() -> None:
    sweep = Sweep(Time(), interval=0.01)
    second = Thing(-1.0)

    class First(Thing):
        def overdue(self, now: float) -> None:
            super().overdue(now)
            sweep.forget(second)

    first = First(-1.0)
    sweep.watch(first)
    sweep.watch(second)
    await eventually(lambda: first.told)
    await asyncio.sleep(0.03)
    assert second.told == []
    sweep.forget(first)


async def test_what_is_watched_while_it_sweeps_is_seen_next_time() -> None:
    sweep = Sweep(Time(), interval=0.01)
    new = Thing(-1.0)

    class First(Thing):
        def overdue(self, now: float) -> None:
            super().overdue(now)
            sweep.watch(new)

    first = First(-1.0)
    sweep.watch(first)
    await eventually(lambda: new.told)
    for thing in (first, new):
        sweep.forget(thing)
