"""Real processes: mock workers and gateways, started on free ports, told to stop, and waited for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import httpx

READY_SECONDS = 20.0


class Program:
    """A child that printed its address."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def stop(self, sig: int = signal.SIGTERM) -> int:
        self.process.send_signal(sig)
        return self.process.wait(timeout=20)


@contextmanager
def running(
    *arguments: str, settings: dict[str, Any] | None = None, stderr: IO[str] | int = subprocess.DEVNULL, code: str = ""
) -> Iterator[Program]:
    """`python -m ARGUMENTS`, or `-c CODE ARGUMENTS`, until the block ends. `settings` go in by the environment."""
    given = {
        f"PREFIX_ROUTER_{name.upper().replace('.', '__')}": value if isinstance(value, str) else json.dumps(value)
        for name, value in (settings or {}).items()
    }
    process = subprocess.Popen(
        [sys.executable, "-W", "error::RuntimeWarning", *(("-c", code) if code else ("-m",)), *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, **given},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert " listening on " in line, f"{arguments} did not start: {line!r}"
        yield Program(process, line.rsplit(" ", 1)[1].strip())
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def mock_workers(count: int, *flags: str) -> Iterator[list[Program]]:
    """So many mock workers, each as `prefix-worker mock` is started."""
    if count == 0:
        yield []
        return
    with running("backends", "mock", "--port", "0", *flags) as one, mock_workers(count - 1, *flags) as others:
        yield [one, *others]


@contextmanager
def gateway(workers: list[str], /, *flags: str, **settings: Any) -> Iterator[Program]:
    """A gateway process in front of these workers, or of those of the settings, once all of them are ready."""
    count = len(workers or settings.get("workers", ()))
    named = [flag for url in workers for flag in ("--worker", url)]
    quiet = {"log.access": "none", "shutdown.grace_seconds": 0}
    with running("router", "serve", "--port", "0", *named, *flags, settings=quiet | settings) as program:
        until(lambda: ready_workers(program.url) == count)
        yield program


def ready_workers(url: str) -> int:
    return int(httpx.get(f"{url}/readyz").json()["workers_ready"])


def until(holds: Callable[[], bool], seconds: float = READY_SECONDS) -> None:
    """Wait for what comes in its own time; a generous limit, since machines are busy."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)
