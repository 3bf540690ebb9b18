"""The parent: starts the processes, replaces those that die or hang, renews and ends them all. It serves no request.

SIGTERM and SIGINT are passed on as words over the lines, so that it does not matter whether the signal reached the
parent alone or the whole process group. A second one cuts what still runs. SIGHUP reloads, SIGUSR2 restarts one process
after the other. A child whose parent is gone ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from ctypes import c_char
from multiprocessing import get_context, resource_tracker
from secrets import token_hex
from typing import Any

import uvloop

from router.clock import monotonic
from router.observe.own_log import set_up_logging
from router.processes.files import too_few_files
from router.processes.hub import Hub, Member
from router.processes.life import Inheritance, Life
from router.processes.listeners import announce, bind_all, cannot_listen
from router.processes.messages import CUT, STOP, encode_settings
from router.processes.renewal import Renewal
from router.reload import Loaded, Origins, Reloader, SettingsSource
from router.settings import Settings
from router.signals.load_table import table_bytes

log = logging.getLogger("router")

STEADY_SECONDS = 10.0  # one that lived for so long is replaced at once
FIRST_DELAY, MOST_DELAY = 0.25, 5.0  # seconds before one that did not is, doubled each time
LAST_SECONDS = 10.0  # for a process that was told to end at once, or should have ended
FROZEN_SECONDS = 10.0  # one that said nothing for so long, though it counts every second, is killed
LOOK_SECONDS = 1.0


def process_count(settings: Settings) -> int:
    """How many are asked for; 0 means one a core that this process may run on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return settings.listen.processes or cores


def supervise(loaded: Loaded, count: int, source: SettingsSource) -> int:
    """Run so many processes until told to stop; the exit status."""
    settings = loaded[0]
    listen = settings.listen
    lacking = too_few_files(count)
    if lacking:
        sys.stderr.write(f"prefix-router: {lacking}\n")
        return 1
    try:
        listeners = bind_all(listen.host, listen.port, count)
    except OSError as wrong:
        return cannot_listen(listen.host, listen.port, wrong)
    set_up_logging(settings.log.level)
    try:
        supervisor = Supervisor(loaded, listeners, source)
    except OSError as wrong:
        sys.stderr.write(f"prefix-router: no memory can be shared: {wrong.strerror or wrong}\n")
        return 1
    return uvloop.run(supervisor.run())


class Untaken(Exception):
    """Some process could not take new settings."""


class Supervisor:
    """`lives`: by index, the process that takes new connections; others may be leaving."""

    def __init__(self, loaded: Loaded, listeners: list[socket.socket], source: SettingsSource) -> None:
        self._listeners, self._source = listeners, source
        self._rows = 2 * len(listeners) + 1  # in a rolling restart: as many again that are leaving, and a successor
        self._context = get_context("spawn")
        self._table = self._context.RawArray(c_char, table_bytes(self._rows))
        self._family = token_hex(8)
        self._hub = Hub(monotonic)
        self._reloader = Reloader(source, loaded, self._take, self._hub.mark)
        self._hub.reload = self._reloader.reload
        self.lives: dict[int, Life] = {}
        self.running: set[Life] = set()
        self.locks = [asyncio.Lock() for _ in listeners]  # an index's, while it has a process started
        self.stopping = asyncio.Event()
        self._renewal = Renewal(self, self._reloader)
        self._grace = 0.0
        self._up = False  # all have listened once
        self._status = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        resource_tracker.ensure_running()  # it unblocks the signals that a start blocks, so it comes first
        loop.add_signal_handler(signal.SIGTERM, self._signalled, None)
        loop.add_signal_handler(signal.SIGINT, self._signalled, 0.0)
        loop.add_signal_handler(signal.SIGHUP, self._reloader.begin, "SIGHUP")
        loop.add_signal_handler(signal.SIGUSR2, self._renewal.begin)
        keeping = [asyncio.create_task(self._keep(index)) for index in range(len(self._listeners))]
        others = [asyncio.create_task(each) for each in (self._end(), self._reloader.follow(), self._watch())]
        try:
            await asyncio.gather(*keeping)
            await asyncio.gather(*(life.over for life in self.running))
        finally:
            for task in others:
                task.cancel()
            for life in self.running:
                life.kill()  # none is left, unless something went wrong here
        return self._status

    # One process and its successors.

    async def _keep(self, index: int) -> None:
        """Have a process with this index, for as long as the gateway runs."""
        delay = 0.0
        while not self.stopping.is_set():
            async with self.locks[index]:
                life = self.lives.get(index)
                if life is None or life.over.done():
                    life = self.lives[index] = self.start(index)
            ends: set[asyncio.Future[Any]] = {life.over, life.replaced}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self.stopping.is_set():
                return
            if self.lives[index] is not life:
                continue  # it has a successor, which may end before it does
            why = life.over.result()
            if not self._up:
                self._give_up(index, why)
                return
            steady = monotonic() - life.began > STEADY_SECONDS
            delay = 0.0 if steady else min(max(FIRST_DELAY, delay * 2), MOST_DELAY)
            log.error("process %d ended (%s); another is started%s", index, why, f" in {delay:g} s" if delay else "")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self.stopping.wait()

    def start(self, index: int) -> Life:
        """Start a process; whether that goes well shows."""
        taken = {life.member.slot for life in self.running}
        slot = next(slot for slot in range(self._rows) if slot not in taken)
        member = Member(index, self._hub, slot)
        given = lambda line: Inheritance(  # noqa: E731 - the settings are those of the moment it is started
            index, len(self._listeners), slot, self._rows, self._family, self._up, *self._reloader.wanted,
            self._listeners[index], line, self._table,
        )  # fmt: skip
        life = Life(member, self._hub, self._context).begin(given, self.stopping)
        self.running.add(life)
        announcing = asyncio.create_task(self._announce(member))
        life.over.add_done_callback(lambda _: announcing.cancel() and None)
        life.over.add_done_callback(lambda _: self.running.discard(life))
        return life

    async def _announce(self, member: Member) -> None:
        """Say where the gateway listens once all processes do, for the first time."""
        await member.listens.wait()
        members = self._hub.members.values()
        if not self._up and len(members) == len(self._listeners) and all(each.listens.is_set() for each in members):
            self._up = True
            announce(self._listeners[0], tls=self._reloader.settings.listen.tls.certificate is not None)

    def _give_up(self, index: int, why: str) -> None:
        """A fault at the start is nothing that trying again would mend."""
        if self._status == 0:
            self._status = 1
            of = len(self._listeners)
            sys.stderr.write(f"prefix-router: process {index} of {of} failed to start ({why})\n")
        self._signalled(0.0)
        self._signalled(0.0)

    async def _take(self, settings: Settings, origins: Origins) -> None:
        """Hand settings to all. Where one cannot take new ones none keeps them; one that cannot go back is replaced."""
        logging.getLogger().setLevel(settings.log.level.upper())
        failed = await self._hub.hand_out(encode_settings(settings, origins))
        if failed and not self._reloader.taking_back:
            raise Untaken(", ".join(f"process {member.index}" for member in failed))
        for member in failed:
            log.error("process %d could not take the settings it had; it is replaced", member.index)
            self._renewal.begin(member.index)

    async def _watch(self) -> None:
        """A process that is frozen, by whatever, has connections waiting that another could serve."""
        before = monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = monotonic()
            paused = now - before > 2 * LOOK_SECONDS  # so was this one: nothing could be heard
            before = now
            for life in self.running:
                member = life.member
                if paused:
                    member.heard_at = now
                elif member.listens.is_set() and now - member.heard_at > FROZEN_SECONDS:
                    log.error("process %d (pid %d) hangs and is killed", member.index, member.pid)
                    life.kill()

    # The end.

    def _signalled(self, grace: float | None) -> None:
        """The first time: end gracefully, and after that at once."""
        if not self.stopping.is_set():
            self._grace = self._reloader.settings.shutdown.grace_seconds if grace is None else grace
            self.stopping.set()
            for listener in self._listeners:
                listener.close()  # the children have theirs, each for as long as it takes new connections
            self._tell_all(STOP, str(self._grace).encode())
        else:
            self._grace = -1.0
            self._tell_all(CUT)
            asyncio.get_running_loop().call_later(LAST_SECONDS, self._kill_all)

    async def _end(self) -> None:
        """See to it that the end comes, whatever hangs."""
        await self.stopping.wait()
        shutdown = self._reloader.settings.shutdown
        await asyncio.sleep(self._grace + shutdown.drain_seconds + 2 * LAST_SECONDS)
        self._kill_all()

    def _tell_all(self, kind: str, content: bytes = b"") -> None:
        for member in self._hub.members.values():
            member.line.tell(kind, content)

    def _kill_all(self) -> None:
        for life in self.running:
            log.error("process %d (pid %d) did not end in time and is killed", life.member.index, life.member.pid)
            life.kill()
