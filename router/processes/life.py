"""One process of the gateway, from its start to its end, as the parent sees it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from ctypes import Array, c_char
from dataclasses import dataclass
from multiprocessing.context import SpawnContext, SpawnProcess

from router.clock import monotonic
from router.processes.hub import Hub, Member
from router.settings import Settings
from router.signals.load_table import clear

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)


@dataclass(frozen=True)
class Inheritance:
    """What a process is started with. It travels in a pipe, not in arguments or the environment: there are secrets.

    index: which of the processes it is
    slot: its row in the table of loads, which has `rows`
    """

    index: int
    processes: int
    slot: int
    rows: int
    family: str
    successor: bool
    settings: Settings
    origins: dict[str, str]
    listener: socket.socket
    line: socket.socket
    table: Array[c_char]  # an array of `table_bytes` in shared memory


class Life:
    """A process that runs. `over` is done at its end, and all it said has been heard then: what it ended by. `replaced`
    is once another one takes its new connections, which may be long before that."""

    def __init__(self, member: Member, hub: Hub, context: SpawnContext) -> None:
        self.member, self._hub, self._context = member, hub, context
        self.began = monotonic()
        self.child: SpawnProcess | None = None
        self.over: asyncio.Task[str]
        self.replaced: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, given: Callable[[socket.socket], Inheritance], stopping: asyncio.Event) -> Life:
        """Start it in a task of its own, unless all are about to stop. `given` its end of the line it inherits."""
        self.over = asyncio.create_task(self._live(given, stopping), name=f"process {self.member.index}")
        return self

    async def _live(self, given: Callable[[socket.socket], Inheritance], stopping: asyncio.Event) -> str:
        member = self.member
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                await member.line.open(ours)
                if stopping.is_set():
                    await member.line.close()
                    return ""
                inherited = given(theirs)
                child = self._start(inherited)
        except OSError as wrong:  # no memory, or no sockets left
            await member.line.close()
            return str(wrong)
        await _ended(child)
        await member.line.ended.wait()
        self._hub.leave(member)
        clear(memoryview(inherited.table), member.slot)
        self.child = None
        return f"pid {member.pid}, {cause(child.exitcode)}"

    def _start(self, given: Inheritance) -> SpawnProcess:
        child = self._context.Process(target=begin, args=(given,), name=f"prefix-router {given.index}")
        with _unheard():
            child.start()
        self.member.pid = child.pid or 0
        self.child = child
        self._hub.join(self.member)
        return child

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()


async def _ended(child: SpawnProcess) -> None:
    """Wait for its end, which its sentinel tells."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(child.sentinel, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(child.sentinel)
    child.join()


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
