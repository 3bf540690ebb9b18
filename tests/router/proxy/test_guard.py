"""What a client may take: time and bytes. The lane around it is told in test_lane.py."""

import pytest

from router.proxy.sweep import PATIENCE, SLOWEST
from tests.router.proxy.test_lane import Desk
from tests.support.client import post

CHUNKED = [("Transfer-Encoding", "chunked")]


async def test_pieces_in_time_do_not_hold_a_request_for_ever(desk: Desk) -> None:
    """The limit between two pieces is ten seconds here; one byte every nine keeps it."""
    desk.hears(post(b"a", length=10_000))
    for _ in range(200):
        desk.over(9.0)
        desk.hears(b"a")
        if "refuse" in desk.story.told:
            break
    assert desk.time.now == pytest.approx(10.0 * PATIENCE, abs=10)
    assert desk.transport.state == "closing"


async def test_a_kilobyte_a_second_is_enough(desk: Desk) -> None:
    desk.hears(post(b"", length=10_000_000))
    for _ in range(200):
        desk.over(9.0)
        desk.hears(b"a" * int(9 * SLOWEST))
    assert "refuse" not in desk.story.told


async def test_framing_without_content_is_bounded(desk: Desk) -> None:
    desk.hears(post(b"1\r\na\r\n1;", headers=CHUNKED))
    for _ in range(10_000):
        desk.hears(b"a" * 50)
        if desk.transport.state != "open":
            break
    assert "refuse" in desk.story.told


async def test_extensions_between_content_are_bounded_too(desk: Desk) -> None:
    desk.hears(post(b"1\r\na\r\n", headers=CHUNKED))
    for _ in range(1000):
        desk.hears(b"1;" + b"x" * 500 + b"\r\na\r\n")
        if desk.transport.state != "open":
            break
    assert "refuse" in desk.story.told


async def test_each_request_is_weighed_by_itself(desk: Desk) -> None:
    for _ in range(50):
        request = post(b"a" * 100)
        desk.hears(request[:-90], request[-90:-50], request[-50:])
        assert desk.story.told == ["begin", "complete"]
        desk.story.answer()
        desk.over(70.0)
    assert desk.transport.state == "open"
