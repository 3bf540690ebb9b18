"""All processes of this gateway, seen from one of them. Alone, it is all there is, and nothing is asked of anybody."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from router.core.health import DRAIN, DRAINING, UNDRAIN
from router.discovery.roster import Roster
from router.errors import Refusal
from router.house import House
from router.observe.decisions import Decisions, joined
from router.observe.metrics import Metrics
from router.observe.snapshot import decode
from router.observe.snapshot import encode as encode_counts
from router.processes.messages import (
    CHANGE,
    DECISIONS,
    DRAINED,
    PROCESSES,
    RELOAD,
    WHOLE,
    Change,
    ProcessRow,
    decode_in_flight,
    decode_lists,
    decode_outcome,
    decode_rows,
    encode,
    process_row,
)
from router.reload import Outcome, Reloader
from router.signals.line import Line

PATIENCE = 2.0  # seconds for the parent, which itself waits at most one for the others
RELOAD_SECONDS = 20.0  # for a reload: a long file takes its time


class Unreached(Refusal):
    """The parent, which knows the other processes, did not answer."""

    status, code, kind = 503, "processes_unreachable", "server_error"


class Crew:
    """`line` leads to the parent, where there is one; `look` brings the load of the others up to date."""

    def __init__(
        self, house: House, roster: Roster, apply: Callable[[], None], metrics: Metrics, decisions: Decisions
    ) -> None:
        self._house, self._roster, self._apply = house, roster, apply
        self._metrics, self._decisions = metrics, decisions
        self._began = house.clock()
        self._to_drain: set[str] = set()
        self._handing_over: dict[str, asyncio.TimerHandle] = {}
        self.line: Line | None = None
        self.look: Callable[[], None] = _nothing
        self.reloader: Reloader | None = None  # of this process, where it is the only one

    # What the routes ask.

    async def change(self, change: Change) -> None:
        """Make it in every process. Raises Unreached."""
        if self.line is None:
            self.make(change)
        else:
            await self._ask(CHANGE, encode(change))

    async def reload(self) -> Outcome:
        """Read the settings again; all processes take them, or none. Raises Unreached."""
        if self.line is not None:
            return decode_outcome(await self._ask(RELOAD, seconds=RELOAD_SECONDS))
        if self.reloader is None:
            return Outcome(faults=("this gateway was given its settings and cannot read them again",))
        return await self.reloader.reload("POST /admin/reload")

    async def scrape(self) -> bytes:
        """Prometheus text of all processes together. Raises Unreached."""
        if self.line is None:
            return self._metrics.scrape()
        return self._metrics.scrape(decode(await self._ask(WHOLE)))

    async def decisions(self) -> list[dict[str, Any]]:
        """The latest of all processes, newest first. Raises Unreached."""
        if self.line is None:
            return self._decisions.latest()
        lists = decode_lists(await self._ask(DECISIONS))
        return joined(msgspec.msgpack.decode(each) for each in lists)

    async def draining(self) -> dict[str, int]:
        """Of each worker that drains here, what is in flight there in all processes: none of it is older than this
        question. A process that does not say that it drains there too may still send it a request, and counts as one;
        so does a parent that does not answer."""
        if self.line is None:
            return self._in_flight()
        try:
            said = list(map(decode_in_flight, decode_lists(await self._ask(DRAINED))))
        except Unreached:
            said = [self._in_flight(), {}]
        return {name: sum(each.get(name, 1) for each in said) for name in self._in_flight()}

    async def processes(self) -> list[ProcessRow]:
        """Every process. Raises Unreached."""
        if self.line is None:
            uptime = self._house.clock() - self._began
            return [process_row(0, os.getpid(), uptime, self._metrics.snapshot())]
        return decode_rows(await self._ask(PROCESSES))

    # What this process answers.

    def make(self, change: Change) -> None:
        """Make the change here."""
        name = change.worker_id
        if change.kind == "add" and change.worker is not None:
            self._roster.add(change.worker)
            self._apply()
        elif change.kind == "remove":
            self._to_drain.discard(name)
            self._hand_over_no_more(name)
            self._roster.remove(name)
            self._apply()
        elif change.kind == "drain":
            self._drain(name, change.over_seconds)
        elif change.kind == "undrain":
            self._to_drain.discard(name)
            self._hand_over_no_more(name)
            seat = self._house.fleet.seats.get(name)
            if seat is not None:
                self._house.signal(seat, UNDRAIN, "admin")

    def _drain(self, name: str, over_seconds: float) -> None:
        """At once, or after its prefixes have moved one after the other."""
        self._hand_over_no_more(name)
        seat = self._house.fleet.seats.get(name)
        if over_seconds > 0 and seat is not None:
            self._house.fleet.hand_over(seat, self._house.clock(), over_seconds)
            later = asyncio.get_running_loop().call_later
            self._handing_over[name] = later(over_seconds, self._drain, name, 0.0)
        else:
            self._to_drain.add(name)
            self.settle(self._house.fleet.seats)

    def _hand_over_no_more(self, name: str) -> None:
        timer = self._handing_over.pop(name, None)
        if timer is not None:
            timer.cancel()
            seat = self._house.fleet.seats.get(name)
            if seat is not None:
                seat.easing = None

    def settle(self, known: Iterable[str]) -> None:
        """Drain those that were to be drained before they were known, as in a process that was just started."""
        for name in self._to_drain.intersection(known):
            self._to_drain.discard(name)
            self._house.signal(self._house.fleet.seats[name], DRAIN, "admin")

    def counted(self) -> bytes:
        return encode_counts(self._metrics.snapshot())

    def drained(self) -> bytes:
        return encode(self._in_flight())

    def decided(self) -> bytes:
        return encode(self._decisions.latest())

    def _in_flight(self) -> dict[str, int]:
        """At the workers that drain here, by this process."""
        seats = self._house.fleet.seats.values()
        return {seat.id: seat.load.in_flight for seat in seats if seat.health.state is DRAINING}

    async def _ask(self, kind: str, content: bytes = b"", seconds: float = PATIENCE) -> bytes:
        try:
            return await self.line.ask(kind, content, seconds) if self.line is not None else b""
        except (TimeoutError, ConnectionError):
            raise Unreached("The gateway's other processes cannot be reached now.", retry_after=1.0) from None


def _nothing() -> None:
    """Nobody else has a load."""
