"""Running a worker until it is told to stop: the part of a command that is the same for every engine."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from backends.face import Face
from backends.server import Server

Serve = Callable[[], Coroutine[None, None, int]]


def run(serve: Serve) -> int:
    """Runs on uvloop where it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop]
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(serve())


async def listen(servers: Sequence[Server]) -> bool:
    """Opens all ports, or says in one line which one cannot be had."""
    for server in servers:
        try:
            await server.listen()
        except OSError as error:
            complain(f"cannot listen on {server.address}: {error.strerror or error}")
            return False
    return True


async def until_told(load: Coroutine[Any, Any, None] | None = None) -> None:
    """Returns on SIGTERM or SIGINT. `load` runs beside it, is cancelled then, and what it raises is raised here. A
    thread that it waits for cannot be stopped: the process ends when that has."""
    await _first(_told(), _stay(load)) if load is not None else await _told()


async def drain(servers: Sequence[Server], face: Face, seconds: float) -> None:
    """Takes nothing new, and lets what runs finish within so many seconds or until a second signal. Ports are closed;
    on connections that are still open, health and work are answered with 503. The rest is cut by who closes the worker
    afterwards; with 0 seconds that is everything."""
    if seconds > 0:
        face.close()
        for server in servers:
            server.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await _first(_told(), _finished(servers, face))


async def _finished(servers: Sequence[Server], face: Face) -> None:
    await face.ledger.quiet()
    for server in servers:
        server.stop()
    for server in servers:
        await server.empty()


async def _told() -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    await told.wait()


async def _stay(work: Coroutine[Any, Any, None]) -> None:
    """Ends only by what the work raises."""
    await work
    await asyncio.Event().wait()


async def _first(*works: Coroutine[Any, Any, None]) -> None:
    """Waits for the first to end, raises what it raised, and leaves none behind."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def announce(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def complain(line: str) -> None:
    sys.stderr.write(f"prefix-worker: {line}\n")
