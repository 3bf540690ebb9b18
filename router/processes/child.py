"""One of several processes: a whole gateway that shares its load, its counts and its admin with its siblings.

It ends when the parent says so, when it gets a signal itself, and when the parent is gone. Only the parent's word ends
it at once: a signal to the whole process group would else count twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from types import FrameType

from router.clock import monotonic
from router.core.health import STARTING
from router.events import Chosen, Finished
from router.observe.own_log import set_up_logging
from router.processes.life import SIGNALS, Inheritance
from router.processes.messages import (
    BEGIN,
    CHANGE,
    COUNT,
    COUNTED,
    CUT,
    DECISIONS,
    DRAINED,
    LEAVE,
    LISTENING,
    REFUSED,
    SETTINGS,
    STOP,
    decode_change,
    decode_settings,
)
from router.server import Server, is_fit, run, uvicorn_config
from router.signals.line import Line
from router.signals.load_sharing import LoadSharing
from router.signals.load_table import Row
from router.signals.siblings import MOST_PENDING, NEWS, Siblings
from router.wiring import Gateway

COUNTED_EVERY = 1.0  # seconds between two snapshots of the counts; so much may be lost when a process is killed
ACQUAINTED_SECONDS, LOOK_SECONDS = 2.0, 0.01  # at most, for workers that do not answer their first probe
KNOWN_LOOKS, KNOWN_LOOK_SECONDS = 600, 0.25  # longer than a rolling restart waits, which leaves it at the old process
START_SECONDS = 60.0  # for the parent's first answer; it may be busy with starting others


def live(given: Inheritance) -> int:
    """Serve until told to stop; the exit status."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its parent reloads for all
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    set_up_logging(given.settings.log.level, f"[{given.index}] ")
    return run(Child(given, Gateway(given.settings, given.origins)), given.listener)


class Child(Server):
    def __init__(self, given: Inheritance, gateway: Gateway) -> None:
        super().__init__(uvicorn_config(gateway, fast=is_fit()), gateway)
        self._given = given
        self._line = Line(self._told, self._answer)
        gateway.family = given.family
        gateway.before_serving = self._acquainted if given.successor else None
        self._siblings = Siblings(self._line, gateway.share().receive)
        row = Row(memoryview(given.table), given.slot, given.rows)
        row.rows = given.processes  # those of leaving ones are seldom in use
        self._load = LoadSharing(row, gateway.fleet, monotonic, gateway.house.freed, self._note_each)

    def _note_each(self) -> None:
        bus, load = self._gateway.bus, self._load
        bus.on(Chosen, load.note)
        bus.on(Finished, load.note)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Hear what was changed before this process began, then serve."""
        line, crew = self._line, self._gateway.crew
        await line.open(self._given.line)
        self._own.append(asyncio.create_task(self._orphaned(), name="until the parent is gone"))
        try:
            await line.ask(BEGIN, b"", START_SECONDS)
        except (TimeoutError, ConnectionError):  # nobody is there to serve for
            self.should_exit = True
            return
        crew.line, crew.look = line, self._load.look
        self._load.start()
        self._gateway.share().join(self._siblings)
        await super().startup(sockets)

    def listening(self, listener: socket.socket) -> None:
        self._line.tell(LISTENING)
        self._own.append(asyncio.create_task(self._count(), name="counts for the parent"))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._load.stop()
        self._line.tell(COUNTED, self._gateway.crew.counted())
        await self._line.close()

    async def _acquainted(self) -> None:
        """A successor takes requests once it knows its workers and asked them how they do; until then they wait in its
        queue. One that cannot learn who they are does not take the place of a process that knows."""
        for _ in range(KNOWN_LOOKS):
            if self.ending or await self._gateway.sources.heard(KNOWN_LOOK_SECONDS):
                break
        seats = self._gateway.fleet.seats
        for _ in range(int(ACQUAINTED_SECONDS / LOOK_SECONDS)):
            if all(seat.health.state is not STARTING or seat.health.failed_probes for seat in seats.values()):
                return
            await asyncio.sleep(LOOK_SECONDS)

    # What the parent says.

    def _told(self, kind: str, content: bytes) -> None:
        if kind == NEWS:
            self._siblings.receive(content)
        elif kind == CHANGE:
            self._gateway.crew.make(decode_change(content))
        elif kind == SETTINGS:
            self._gateway.adopt(*decode_settings(content))
        elif kind == REFUSED:
            self._gateway.metrics.reload_failed = bool(content)
        elif kind == STOP and not self.ending:
            self.end(float(content))
        elif kind == LEAVE and not self.ending:
            self._leave(float(content))
        elif kind == CUT:
            if not self.ending:
                self.end(0.0)
            self.cut()

    async def _answer(self, kind: str, content: bytes) -> bytes:
        crew = self._gateway.crew
        if kind == CHANGE:
            crew.make(decode_change(content))
        elif kind == SETTINGS:
            self._gateway.adopt(*decode_settings(content))
        elif kind == COUNT:
            self._line.tell(COUNTED, crew.counted())
        elif kind == DRAINED:
            return crew.drained()
        elif kind == DECISIONS:
            return crew.decided()
        return b""

    async def _count(self) -> None:
        while True:
            if self._line.pending < MOST_PENDING:
                self._line.tell(COUNTED, self._gateway.crew.counted())
            await asyncio.sleep(COUNTED_EVERY)

    # How it ends.

    def _leave(self, grace: float) -> None:
        """A successor takes new connections. Those that are open here may ask once more, and are closed with that."""
        self.close_listeners()
        self.last_answers()
        asyncio.get_running_loop().call_later(grace, self._stop)

    async def _orphaned(self) -> None:
        await self._line.ended.wait()
        if not self.ending:
            self.end(0.0)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.ending:
            super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They were blocked when this process was started; one that came in the meantime is heard now."""
        with super().capture_signals():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            yield
