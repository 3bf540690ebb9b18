"""The fast lane inside uvicorn's own HTTP protocol class.

uvicorn keeps the sockets, signals, keep-alive and graceful stop; what a client sends is read by a `Lane`, which answers
the proxied POSTs itself and hands the rest back to this class. `HttpToolsProtocol` is no public API: uvicorn is pinned
to a tested range, `fit.py` checks it at start-up, and the ASGI endpoint stands in when that fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from router.contracts import Teller
from router.errors import Refusal
from router.proxy.guard import Terms
from router.proxy.lane import Lane
from router.proxy.sweep import ClientLimits, Sweep


class FastLane(HttpToolsProtocol):
    """One client connection. Subclassed by `lane_for` with the terms of the house it belongs to."""

    terms: ClassVar[Terms]
    lane: Lane

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lane = Lane(self, self.terms)
        self.parser = self.lane.parser
        self.data_received = self.lane.data_received  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.lane.begin(transport)

    @property
    def in_message(self) -> bool:
        """A request has begun to come."""
        return self.lane.in_message

    def cut(self) -> None:
        """End it at once, so that nobody takes what it has of an answer for the whole."""
        if self.lane.sink is not None:
            self.lane.sink.cut()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lane.lost()
        super().connection_lost(exc)
        self.lane.shell = self.lane.parser = None
        del self.data_received  # no cycle is left

    def pause_writing(self) -> None:
        super().pause_writing()
        self.lane.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.lane.resume_writing()

    def on_response_complete(self) -> None:
        """An answer of the app's is over, or one behind which others wait."""
        self.lane.timed = True
        super().on_response_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.lane.running = cycle
        super()._start_asgi_task(cycle, app)


def lane_for(
    house: Teller, limits: ClientLimits, sweep: Sweep, emit_refused: Callable[[Refusal, str, str], None]
) -> type[FastLane]:
    """The protocol class to hand to uvicorn as `http=`."""
    return type("HouseLane", (FastLane,), {"terms": Terms(house, limits, sweep, emit_refused)})
