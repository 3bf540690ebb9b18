"""Running a worker."""

import asyncio
import os
import signal

import pytest

from backends import serving
from backends.server import Server


def test_a_worker_runs_and_its_status_comes_back() -> None:
    async def serve() -> int:
        return 7 if "uvloop" in type(asyncio.get_running_loop()).__module__ else 8

    assert serving.run(serve) == 7


async def test_it_waits_until_it_is_told() -> None:
    waiting = asyncio.ensure_future(serving.until_told())
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(waiting, 10)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)


async def test_a_host_that_cannot_be_had_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert not await serving.listen([Server(lambda *_: None, "192.0.2.1", 1)])
    assert capsys.readouterr().err.startswith("prefix-worker: cannot listen on http://192.0.2.1:1: ")


def test_what_is_said_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    serving.announce("here")
    assert capsys.readouterr().out == "here\n"
