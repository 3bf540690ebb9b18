"""The parent: starts the processes, replaces those that die, ends them all. It serves no request itself.

SIGTERM and SIGINT are passed on as words over the lines, so that it does not matter whether the signal reached the
parent alone or the whole process group. A second one cuts what still runs. A child whose parent is gone ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from ctypes import Array, c_char
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.context import SpawnProcess
from secrets import token_hex

import uvloop

from router.clock import monotonic
from router.observe.own_log import set_up_logging
from router.processes.hub import Hub, Member
from router.processes.listeners import announce, bind_all, cannot_listen
from router.processes.messages import CUT, STOP
from router.settings import Settings
from router.signals.load_table import clear, table_bytes

log = logging.getLogger("router")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STEADY_SECONDS = 10.0  # one that lived for so long is replaced at once
FIRST_DELAY, MOST_DELAY = 0.25, 5.0  # seconds before one that did not is, doubled each time
LAST_SECONDS = 10.0  # for a process that was told to end at once, or should have ended


@dataclass(frozen=True)
class Inheritance:
    """What a process is started with. It travels in a pipe, not in arguments or the environment: there are secrets."""

    index: int
    processes: int
    family: str
    successor: bool
    settings: Settings
    origins: dict[str, str]
    listener: socket.socket
    line: socket.socket
    table: Array[c_char]  # an array of `table_bytes` in shared memory


def process_count(settings: Settings) -> int:
    """How many are asked for; 0 means one a core that this process may run on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return settings.listen.processes or cores


def supervise(settings: Settings, origins: dict[str, str], count: int) -> int:
    """Run so many processes until told to stop; the exit status."""
    listen = settings.listen
    try:
        listeners = bind_all(listen.host, listen.port, count)
    except OSError as wrong:
        return cannot_listen(listen.host, listen.port, wrong)
    set_up_logging(settings.log.level)
    try:
        supervisor = Supervisor(settings, origins, listeners)
    except OSError as wrong:
        sys.stderr.write(f"prefix-router: no memory can be shared: {wrong.strerror or wrong}\n")
        return 1
    return uvloop.run(supervisor.run())


class Supervisor:
    def __init__(self, settings: Settings, origins: dict[str, str], listeners: list[socket.socket]) -> None:
        self._settings, self._origins, self._listeners = settings, origins, listeners
        self._context = get_context("spawn")
        self._table = self._context.RawArray(c_char, table_bytes(len(listeners)))
        self._hub = Hub(monotonic)
        self._family = token_hex(8)
        self._children: dict[int, SpawnProcess] = {}
        self._stopping = asyncio.Event()
        self._grace = 0.0
        self._up = False  # all have listened once
        self._status = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        resource_tracker.ensure_running()  # it unblocks the signals that `_unheard` blocks, so it comes first
        loop.add_signal_handler(signal.SIGTERM, self._signalled, self._settings.shutdown.grace_seconds)
        loop.add_signal_handler(signal.SIGINT, self._signalled, 0.0)
        loop.add_signal_handler(signal.SIGHUP, self._pass_on, signal.SIGHUP)
        keeping = [asyncio.create_task(self._keep(index)) for index in range(len(self._listeners))]
        ending = asyncio.create_task(self._end())
        try:
            await asyncio.gather(*keeping)
        finally:
            ending.cancel()
            for child in self._children.values():
                child.kill()  # none is left, unless something went wrong here
        return self._status

    # One process and its successors.

    async def _keep(self, index: int) -> None:
        """Have a process with this index, for as long as the gateway runs."""
        delay = 0.0
        while not self._stopping.is_set():
            began = monotonic()
            why = await self._live(index)
            if self._stopping.is_set():
                return
            if not self._up:
                self._give_up(index, why)
                return
            delay = 0.0 if monotonic() - began > STEADY_SECONDS else min(max(FIRST_DELAY, delay * 2), MOST_DELAY)
            log.error("process %d ended (%s); another is started%s", index, why, f" in {delay:g} s" if delay else "")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()

    async def _live(self, index: int) -> str:
        """One process from its start to its end; what it ended by."""
        member = Member(index, self._hub)
        try:
            ours, theirs = socket.socketpair()
            await member.line.open(ours)
            with theirs:
                if self._stopping.is_set():
                    return ""
                child = self._start(member, theirs)
        except OSError as wrong:  # no memory, or no sockets left
            await member.line.close()
            return str(wrong)
        announcing = asyncio.create_task(self._announce(member))
        await self._ended(child)
        await member.line.ended.wait()
        announcing.cancel()
        self._hub.leave(member)
        clear(memoryview(self._table), index)
        del self._children[index]
        return f"pid {member.pid}, {cause(child.exitcode)}"

    def _start(self, member: Member, line: socket.socket) -> SpawnProcess:
        index = member.index
        given = Inheritance(
            index, len(self._listeners), self._family, self._up, self._settings, self._origins, self._listeners[index],
            line, self._table,
        )  # fmt: skip
        child = self._context.Process(target=begin, args=(given,), name=f"prefix-router {index}")
        with _unheard():
            child.start()
        member.pid = child.pid or 0
        self._children[index] = child
        self._hub.join(member)
        return child

    async def _announce(self, member: Member) -> None:
        """Say where the gateway listens once all processes do, for the first time."""
        await member.listens.wait()
        members = self._hub.members.values()
        if not self._up and len(members) == len(self._listeners) and all(each.listens.is_set() for each in members):
            self._up = True
            announce(self._listeners[0], tls=self._settings.listen.tls.certificate is not None)

    async def _ended(self, child: SpawnProcess) -> None:
        """Wait for its end, which its sentinel tells."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(child.sentinel, over.set)
        try:
            await over.wait()
        finally:
            loop.remove_reader(child.sentinel)
        child.join()

    def _give_up(self, index: int, why: str) -> None:
        """A fault at the start is nothing that trying again would mend."""
        if self._status == 0:
            self._status = 1
            of = len(self._listeners)
            sys.stderr.write(f"prefix-router: process {index} of {of} failed to start ({why})\n")
        self._signalled(0.0)
        self._signalled(0.0)

    # The end.

    def _signalled(self, grace: float) -> None:
        """The first time: end gracefully, and after that at once."""
        if not self._stopping.is_set():
            self._grace = grace
            self._stopping.set()
            for listener in self._listeners:
                listener.close()  # the children have theirs, each for as long as it takes new connections
            self._tell_all(STOP, str(grace).encode())
        else:
            self._grace = -1.0
            self._tell_all(CUT)
            asyncio.get_running_loop().call_later(LAST_SECONDS, self._kill_all)

    async def _end(self) -> None:
        """See to it that the end comes, whatever hangs."""
        await self._stopping.wait()
        shutdown = self._settings.shutdown
        await asyncio.sleep(self._grace + shutdown.drain_seconds + 2 * LAST_SECONDS)
        self._kill_all()

    def _tell_all(self, kind: str, content: bytes = b"") -> None:
        for member in self._hub.members.values():
            member.line.tell(kind, content)

    def _kill_all(self) -> None:
        for index, child in self._children.items():
            log.error("process %d (pid %s) did not end in time and is killed", index, child.pid)
            child.kill()

    def _pass_on(self, sig: int) -> None:
        for child in self._children.values():
            if child.pid is not None:
                os.kill(child.pid, sig)


def begin(given: Inheritance) -> None:
    """Where a child begins. Its modules are not the parent's, which stays small."""
    from router.processes.child import live

    sys.exit(live(given))


def cause(code: int | None) -> str:
    """An exit status in words."""
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit status {code}"


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """A process started within begins with these signals blocked, until it can heed them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
