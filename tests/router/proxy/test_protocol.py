"""The fast lane inside uvicorn's protocol class: what is handed to whom, and that nothing is left of it afterwards."""

import gc
import weakref

from router.proxy.protocol import FastLane
from tests.router.proxy.test_lane import Desk
from tests.support.client import post


async def test_what_is_read_goes_right_to_the_lane(desk: Desk) -> None:
    """A loop asks for the method once, and then calls no other."""
    assert desk.lane.data_received.__self__ is desk.lane.lane  # type: ignore[attr-defined]
    assert desk.lane.parser is desk.lane.lane.parser


async def test_two_connections_have_the_same_terms_and_lanes_of_their_own(desk: Desk) -> None:
    other = Desk()
    assert issubclass(type(desk.lane), FastLane)
    assert desk.lane.lane.terms is type(desk.lane).terms
    assert other.lane.lane is not desk.lane.lane
    other.lane.connection_lost(None)
    assert other.sweep._timer is not None
    other.sweep._timer.cancel()


async def test_a_lost_connection_is_freed_at_once_without_the_garbage_collector() -> None:
    """Cycles would pile up under load until a collection, which stops everything else."""
    desk = Desk()
    desk.hears(post(b"{}"))
    shell, lane = weakref.ref(desk.lane), desk.lane.lane
    desk.lane.connection_lost(None)
    assert desk.sweep._timer is not None
    desk.sweep._timer.cancel()
    gc.disable()
    try:
        del desk.lane
        assert shell() is None
        assert (lane.shell, lane.parser, lane.sink, lane.mine) == (None, None, None, None)
    finally:
        gc.enable()


async def test_what_comes_after_the_end_of_a_connection_does_nothing(desk: Desk) -> None:
    """An answer may end in the very moment in which its connection is lost."""
    desk.hears(post(b"{}"))
    lane = desk.lane.lane
    desk.lane.connection_lost(None)
    lane.answered()
    assert desk.story is not None
