"""Running a worker."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from backends import serving
from backends.face import Access, Call, Face, Route
from backends.server import Server


def test_a_worker_runs_and_its_status_comes_back() -> None:
    async def serve() -> int:
        return 7 if "uvloop" in type(asyncio.get_running_loop()).__module__ else 8

    assert serving.run(serve) == 7


@pytest.fixture
async def handlers() -> AsyncIterator[None]:
    """Takes the loop's signal handlers away again."""
    yield
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)


async def tell() -> None:
    for _ in range(10):  # until those who wait for it do so
        await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("handlers")
async def test_it_waits_until_it_is_told() -> None:
    waiting = asyncio.ensure_future(serving.until_told())
    await tell()
    await asyncio.wait_for(waiting, 10)


@pytest.mark.usefixtures("handlers")
async def test_a_model_that_has_loaded_is_no_reason_to_end() -> None:
    loaded: list[bool] = []

    async def load() -> None:
        loaded.append(True)

    waiting = asyncio.ensure_future(serving.until_told(load()))
    await tell()
    await asyncio.wait_for(waiting, 10)
    assert loaded == [True]


@pytest.mark.usefixtures("handlers")
async def test_a_model_that_cannot_be_loaded_is() -> None:
    async def load() -> None:
        raise FileNotFoundError("no such model")

    with pytest.raises(FileNotFoundError, match="no such model"):
        await serving.until_told(load())


@pytest.mark.usefixtures("handlers")
async def test_told_while_it_loads_it_loads_no_further() -> None:
    ended: list[bool] = []

    async def load() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    waiting = asyncio.ensure_future(serving.until_told(load()))
    await tell()
    await asyncio.wait_for(waiting, 10)
    assert ended == [True]


@pytest.fixture
async def held(engine_of: Any) -> AsyncIterator[tuple[Server, Face, list[Call]]]:
    """A server whose work ends when the test says so: `/work` adds its call to the list."""
    calls: list[Call] = []

    def work(call: Call) -> None:
        call.face.ledger.begin(call.answer)
        calls.append(call)

    face = Face(engine_of(), Access(), extra=[Route("GET", "/work", work, generates=True)])
    server = Server(face, "127.0.0.1", 0)
    await server.listen()
    yield server, face, calls
    server.stop()
    await asyncio.sleep(0)


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: w\r\n\r\n".encode()


@pytest.mark.usefixtures("handlers")
async def test_draining_lets_what_runs_finish_and_takes_nothing_new(held: Any, eventually: Any) -> None:
    """The port is closed at once; on a connection that is still open health and work are refused."""
    server, face, calls = held
    clients = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
    (reader, writer), (other, other_writer) = clients
    writer.write(get("/work"))
    await eventually(lambda: calls)
    draining = asyncio.ensure_future(serving.drain([server], face, 600))
    await asyncio.sleep(0)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)
    other_writer.write(get("/health") + get("/work"))
    assert b" 503 " in await other.readuntil(b"}}")
    assert b" 503 " in await other.readuntil(b"}}")
    calls[0].answer.whole(200, [], b"x" * 10_000_000)
    await eventually(lambda: face.ledger.finished == 1 and len(server.connections) == 1)
    await asyncio.sleep(0.05)
    assert not draining.done(), "the client has not read its answer yet"
    answer = await reader.read()
    assert answer.endswith(b"x" * 10_000_000)
    await asyncio.wait_for(draining, 20)
    assert (face.ledger.finished, face.ledger.in_progress, server.connections) == (1, 0, set())
    for _, each in clients:
        each.close()


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("again", [False, True])
async def test_what_is_not_over_in_time_or_at_a_second_signal_is_left_to_be_cut(
    held: Any, eventually: Any, again: bool
) -> None:
    server, face, calls = held
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(get("/work"))
    await eventually(lambda: calls)
    draining = asyncio.ensure_future(serving.drain([server], face, 600 if again else 0.05))
    if again:
        await tell()
    await asyncio.wait_for(draining, 20)
    assert face.ledger.in_progress == 1
    server.stop()
    assert await reader.read() == b""
    await eventually(lambda: face.ledger.aborted == 1)
    writer.close()


async def test_without_time_to_drain_nothing_is_waited_for(held: Any) -> None:
    server, face, _ = held
    await serving.drain([server], face, 0)
    face.check_ready()
    await server.listen()


async def test_a_host_that_cannot_be_had_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert not await serving.listen([Server(lambda *_: None, "192.0.2.1", 1)])
    assert capsys.readouterr().err.startswith("prefix-worker: cannot listen on http://192.0.2.1:1: ")


def test_what_is_said_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    serving.announce("here")
    assert capsys.readouterr().out == "here\n"
