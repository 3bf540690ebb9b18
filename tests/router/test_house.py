"""What a journey needs of the built house."""

import asyncio

import pytest

from router.core.choose import Choice
from router.core.health import PROBE_FAILED, REQUEST_FAILED
from router.errors import InvalidRequest, ModelNotFound, NoReadyWorker
from router.events import Panicked, WorkerChanged, WorkerLeft
from router.house import House
from router.prompt import Prompt
from tests.support.fleets import worker
from tests.support.stories import Desk


def asking(model: str | None, text: bool = True) -> Prompt:
    return Prompt(b"", model, False, None, None, text)


def desk_of(*models: tuple[str, ...] | None) -> Desk:
    desk = Desk(0)
    desk.house.reconcile([worker(f"w{at}", models=each) for at, each in enumerate(models)])
    return desk


async def test_a_model_that_is_served_is_itself() -> None:
    house = desk_of(("a",), ("b",)).house
    assert house.model(asking("b")) == "b"
    with pytest.raises(ModelNotFound):
        house.model(asking("c"))


async def test_a_model_need_not_be_named_where_there_is_one() -> None:
    assert desk_of(("a",), ("a",)).house.model(asking(None)) == "a"
    assert desk_of(None).house.model(asking(None)) is None
    with pytest.raises(InvalidRequest, match="missing"):
        desk_of(("a", "b")).house.model(asking(None))
    with pytest.raises(InvalidRequest, match="not text"):
        desk_of(("a", "b")).house.model(asking(None, text=False))


async def test_a_worker_without_a_list_may_serve_any() -> None:
    assert desk_of(None).house.model(asking("whatever")) == "whatever"


async def test_without_any_worker_the_way_out_is_told() -> None:
    with pytest.raises(NoReadyWorker, match="--worker"):
        Desk(0).house.model(asking("m"))


async def test_every_dialects_paths_are_known_and_more_may_be_added() -> None:
    house = Desk(1).house
    assert {b"/v1/chat/completions", b"/v1/messages", b"/tokenize"} <= set(house.paths)
    dialect = house.paths[b"/tokenize"].dialect
    house.pass_through(["/more", "/v1/messages"], dialect)
    assert house.paths[b"/more"].dialect is dialect
    assert house.paths[b"/v1/messages"].dialect is not dialect


async def test_the_headers_of_a_choice_are_made_once() -> None:
    desk = Desk(1)
    choice = Choice(desk.seats[0], "home", 0.0, ())
    made = desk.house.routed_headers(choice)
    assert made is desk.house.routed_headers(choice)
    assert dict(made) == {
        b"x-router-worker": b"w0", b"x-router-reason": b"home", b"x-router-policy": b"tests.support.in_order",
    }  # fmt: skip


async def test_the_limit_on_all_requests() -> None:
    desk = Desk(2)
    assert not desk.house.is_full()
    desk.house.most = 2
    for full in (False, True):
        desk.ask()
        assert desk.house.is_full() is full


async def test_changes_of_health_are_told_and_so_is_a_panic() -> None:
    desk = Desk(2)
    desk.events.clear()
    for seat in desk.seats:
        for _ in range(3):
            desk.house.signal(seat, PROBE_FAILED, "probe")
    assert [(event.worker, event.after.value) for event in desk.told(WorkerChanged)] == [
        ("w0", "suspect"), ("w0", "down"), ("w1", "suspect"), ("w1", "down"),
    ]  # fmt: skip
    assert [event.began for event in desk.told(Panicked)] == [True]


async def test_a_signal_that_changes_nothing_is_not_told() -> None:
    desk = Desk(1)
    desk.house.signal(desk.seats[0], REQUEST_FAILED)
    told = len(desk.events)
    desk.house.signal(desk.seats[0], REQUEST_FAILED)
    assert len(desk.events) == told


async def test_one_pump_serves_all_that_was_freed_in_a_turn() -> None:
    desk = Desk(2, each={"max_in_flight": 1})
    for _ in range(4):
        desk.ask()
    pumped = []
    pump = desk.house.room.pump
    desk.house.room.pump = lambda: pumped.append(pump())  # type: ignore[method-assign, func-returns-value]
    for at in range(2):
        desk.sent[at].answers()
    await asyncio.sleep(0)
    assert len(pumped) == 1
    assert len(desk.sent) == 4
    desk.house.pump()
    assert len(pumped) == 1


async def test_pools_belong_to_one_incarnation_of_a_worker() -> None:
    desk = Desk(2)
    pool = lambda seat: House.pool(desk.house, seat)  # noqa: E731
    first, other = (pool(seat) for seat in desk.seats)
    assert pool(desk.seats[0]) is first is not other
    desk.house.reconcile([worker("w0", weight=2.0), worker("w1", models=("m",))])
    assert pool(desk.seats[0]) is not first  # its key may have changed
    assert pool(desk.seats[1]) is other
    desk.house.reconcile([worker("w1", models=("m",))])
    assert [event.worker for event in desk.told(WorkerLeft)] == ["w0"]
    assert list(desk.house._pools.values()) == [other]
    desk.house.close()


async def test_nothing_is_busy_in_a_house_at_rest() -> None:
    desk = Desk(2)
    assert desk.house.busy_connections() == 0
    assert not desk.house.draining
