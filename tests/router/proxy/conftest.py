"""One client connection in the fast lane, for whoever tells of a part of it."""

from collections.abc import AsyncIterator

import pytest

from tests.router.proxy.test_lane import Desk


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    yield desk
    if desk.lane.parser is not None:
        desk.lane.connection_lost(None)
    assert len(desk.sweep) == 0
    if desk.sweep._timer is not None:
        desk.sweep._timer.cancel()
