"""What must hold whatever comes: no fault of ours, each request told of once, nothing left taken, the next served."""

import logging
from collections import Counter

import pytest

from router.journey import Journey
from tests.support.client import post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import Worker


class Watch:
    def __init__(self, running: Running, caplog: pytest.LogCaptureFixture) -> None:
        self.running, self.caplog = running, caplog
        self.stories: list[Journey] = []
        opens = running.house.open

        def opening(*given: object) -> object:
            story = opens(*given)  # type: ignore[arg-type]
            assert isinstance(story, Journey)
            self.stories.append(story)
            return story

        running.house.open = opening  # type: ignore[method-assign, assignment]

    async def look(self, what: str) -> None:
        """After some inputs; `what` says which, so that they can be drawn again."""
        running = self.running
        await eventually(lambda: all(story.ended for story in self.stories), f"{what}: a request hangs")
        await eventually(lambda: not running.house.busy_connections(), f"{what}: a connection is left busy")
        for seat in running.seats.values():
            assert (seat.load.in_flight, seat.load.charged) == (0, 0), what
        told = Counter(event.request_id for event in running.finished)
        assert max(told.values(), default=1) == 1, f"{what}: told of twice"
        assert {story.request_id for story in self.stories} <= set(told), f"{what}: not told of"
        faults = [each for each in self.caplog.records if each.exc_info or each.levelno >= logging.CRITICAL]
        assert not faults, f"{what}: {[(each.getMessage(), each.exc_info) for each in faults]}"
        assert (await ask(running.port, post())).status == 200, f"{what}: the next request fails"
        self.stories.clear()
        running.events.clear()
        self.caplog.clear()


async def watched(stage: Stage, worker: Worker, caplog: pytest.LogCaptureFixture) -> Watch:
    """A gateway that no failing worker is left out of, with short limits."""
    running = await stage.gateway(
        worker,
        timeouts={"client_read_seconds": 1.0, "first_byte_seconds": 0.5, "idle_seconds": 0.5},
        limits={"body_bytes": 100_000, "header_bytes": 8000},
        health={"unhealthy_after": 1_000_000, "outliers": {"least_requests": 1_000_000}},
    )
    return Watch(running, caplog)
