"""Running a worker until it is told to stop: the part of a command that is the same for every engine."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence

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


async def until_told() -> None:
    """Returns on SIGTERM or SIGINT."""
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    await told.wait()


def announce(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def complain(line: str) -> None:
    sys.stderr.write(f"prefix-worker: {line}\n")
