"""Events to listeners."""

import logging

import pytest

from router.events import Event, Panicked, WorkerLeft
from router.observe.bus import Bus


def test_a_listener_is_told_of_its_own_kind_alone_and_in_order() -> None:
    bus, told = Bus(), list[Event]()
    bus.on(WorkerLeft, told.append)
    for event in (WorkerLeft("a"), Panicked(True), WorkerLeft("b")):
        bus.emit(event)
    assert told == [WorkerLeft("a"), WorkerLeft("b")]


def test_all_listeners_of_a_kind_are_told_in_the_order_they_came() -> None:
    bus, told = Bus(), list[str]()
    bus.on(Panicked, lambda _: told.append("first"))
    bus.on(Panicked, lambda _: told.append("second"))
    bus.emit(Panicked(True))
    assert told == ["first", "second"]


def test_an_event_without_listeners_goes_nowhere() -> None:
    Bus().emit(Panicked(False))


def test_a_listener_that_fails_is_logged_and_stops_neither_the_others_nor_the_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_: WorkerLeft) -> None:
        raise RuntimeError("no")

    bus, told = Bus(), list[WorkerLeft]()
    bus.on(WorkerLeft, broken)
    bus.on(WorkerLeft, told.append)
    with caplog.at_level(logging.ERROR, "router"):
        bus.emit(WorkerLeft("a"))
    assert told == [WorkerLeft("a")]
    assert "a listener failed on WorkerLeft" in caplog.text
