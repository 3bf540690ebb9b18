"""Workers that do badly while the others do well are left out for a while, and come back slowly."""

import itertools

import pytest

from router.core.easing import SlowStart
from router.events import WorkerChanged
from tests.support.client import post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import Answer, Seen, Worker, reply

LIMITS = {"least_requests": 10, "window_seconds": 5.0, "eject_seconds": 1.0}
QUICK = {"interval_seconds": 0.1, "timeout_seconds": 2.0, "outliers": LIMITS}
TURNS = {"policy": "round_robin"}


def every_other(status: int) -> Answer:
    """Never twice in a row, so that failures in a row are not what is found."""
    turns = itertools.count()

    def answer(_: Seen) -> Answer:
        return reply(b"{}", status) if next(turns) % 2 == 0 else reply()

    return answer  # type: ignore[return-value]


def downs(running: Running, worker: Worker) -> list[str]:
    changes = running.told(WorkerChanged)
    return [change.cause for change in changes if change.worker == worker.id and change.after == "down"]


async def serve(running: Running, many: int) -> list[int]:
    return [(await ask(running.port, post())).status for _ in range(many)]


async def test_a_worker_that_fails_every_other_request_is_left_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = await stage.worker(answer=every_other(500))
    good = [await stage.worker() for _ in range(3)]
    running = await stage.gateway(bad, *good, routing=TURNS, health=QUICK)
    client = await stage.client(running)  # keeps the watch awake between two requests
    await client.ask()
    monkeypatch.setattr("router.core.fleet.SETTLED_SECONDS", 0.0)
    await serve(running, 60)
    await eventually(lambda: running.state(bad) == "down")
    assert downs(running, bad) == ["error_share"]
    name = f'prefix_router_ejections_total{{cause="error_share",worker="{bad.id}"}}'
    assert (await running.metrics())[name] == 1
    bad.heal()
    seen = len(bad.requests)
    assert set(await serve(running, 6)) == {200}
    assert len(bad.requests) == seen
    await eventually(lambda: running.state(bad) == "trial")
    assert set(await serve(running, 8)) == {200}
    await eventually(lambda: running.state(bad) == "ready")
    assert isinstance(running.seat(bad).easing, SlowStart), "it comes back cold, and so slowly"


@pytest.mark.parametrize("status", [400, 404, 413, 422, 429, 503])
async def test_what_is_the_clients_fault_or_back_pressure_ejects_nobody(stage: Stage, status: int) -> None:
    workers = [await stage.worker(answer=every_other(status)), *[await stage.worker() for _ in range(3)]]
    running = await stage.gateway(*workers, routing=TURNS, health=QUICK)
    await serve(running, 60)
    running.house.watch.look(running.house.clock())
    assert {change.after.value for change in running.told(WorkerChanged)} == {"ready"}
    assert running.seat(workers[0]).failed == 0


async def test_requests_that_fail_everywhere_eject_nobody(stage: Stage) -> None:
    workers = [await stage.worker(answer=every_other(500)) for _ in range(3)]
    running = await stage.gateway(*workers, routing=TURNS, health=QUICK)
    await serve(running, 45)
    running.house.watch.look(running.house.clock())
    assert [downs(running, worker) for worker in workers] == [[], [], []]


async def test_a_worker_that_is_far_slower_than_the_others_is_left_out_and_a_weaker_one_is_not(stage: Stage) -> None:
    workers = [await stage.worker() for _ in range(6)]
    running = await stage.gateway(*workers, routing=TURNS, health=QUICK)
    for worker, pace in zip(workers, (10_000.0, 10_000.0, 10_000.0, 5_000.0, 3_400.0, 500.0), strict=True):
        for _ in range(12):
            running.seat(worker).load.learn_pace(pace, 1.0)
    await serve(running, 6)
    await eventually(lambda: running.state(workers[-1]) == "down")
    assert downs(running, workers[-1]) == ["slow"]
    assert [running.state(worker) for worker in workers[:-1]] == ["ready"] * 5


async def test_changed_thresholds_count_at_once(stage: Stage) -> None:
    bad = await stage.worker(answer=every_other(500))
    running = await stage.gateway(
        bad, *[await stage.worker() for _ in range(3)], routing=TURNS,
        health={**QUICK, "outliers": {**LIMITS, "most_ejected": 0.0, "window_seconds": 60.0}},
    )  # fmt: skip
    await serve(running, 60)
    running.house.watch.look(running.house.clock())
    assert downs(running, bad) == []
    settings = running.house.settings
    outliers = settings.health.outliers.model_copy(update={"most_ejected": 0.5})
    health = settings.health.model_copy(update={"outliers": outliers})
    running.house.adopt(settings.model_copy(update={"health": health}))
    await eventually(lambda: downs(running, bad) == ["error_share"])
    bad.heal()
