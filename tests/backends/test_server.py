"""Listening, refusing, and closing what is quiet."""

import asyncio
import socket
from typing import Any

import pytest

from backends.server import Server


async def test_port_zero_becomes_the_port_that_was_chosen(mock: Any) -> None:
    worker = await mock()
    assert worker.server.port > 0
    assert str(worker.server.port) in repr(worker.server)


async def test_a_refusing_server_cannot_be_connected_to_and_keeps_its_port(mock: Any) -> None:
    """Nobody else may take the port meanwhile, and it comes back as it was."""
    worker = await mock()
    worker.server.refuse()
    worker.server.refuse()
    with pytest.raises(ConnectionRefusedError):
        await worker.connect()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", worker.port))
    await worker.server.listen()
    await worker.server.listen()
    assert (await worker.http.get("/health")).status_code == 200


async def test_refusing_closes_idle_connections_and_leaves_busy_ones(mock: Any, post: Any, eventually: Any) -> None:
    worker = await mock()
    reader, writer = await worker.connect()
    idle, idle_writer = await worker.connect()
    writer.write(post("/v1/completions", {"prompt": "a", "max_tokens": 200, "stream": True}))
    await eventually(lambda: worker.ledger.started == 1)
    worker.server.refuse()
    assert await idle.read() == b""
    assert (await reader.read()).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    writer.close()
    idle_writer.close()


async def test_quiet_connections_are_closed_in_time_and_only_they(mock: Any) -> None:
    worker = await mock()
    worker.server.close_quiet(0.05)
    reader, writer = await worker.connect()
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    worker.server.close_quiet(None)
    reader, writer = await worker.connect()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(), 0.2)
    writer.close()


async def test_a_taken_port_is_an_error_and_nothing_stays_open(mock: Any) -> None:
    worker = await mock()
    with pytest.raises(OSError, match="in use"):
        await Server(lambda *_: None, "127.0.0.1", worker.port).listen()


async def test_the_address_of_a_six_has_brackets() -> None:
    assert Server(lambda *_: None, "::1", 1).address == "http://[::1]:1"


async def test_stopping_cuts_what_is_in_progress(mock: Any, post: Any, eventually: Any) -> None:
    worker = await mock("--decode-tokens-per-second", "0.1")
    reader, writer = await worker.connect()
    writer.write(post("/v1/completions", {"prompt": "a", "stream": True}))
    await eventually(lambda: worker.ledger.started == 1)
    worker.server.stop()
    assert not (await reader.read()).endswith(b"0\r\n\r\n")
    await eventually(lambda: worker.ledger.aborted == 1)
    writer.close()


async def test_one_that_leaves_gives_its_port_back_and_keeps_its_connections(mock: Any) -> None:
    """For good: nothing makes it listen again."""
    worker = await mock()
    assert (await worker.http.get("/health")).status_code == 200
    worker.server.leave()
    await worker.server.listen()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", worker.port))
    assert (await worker.http.get("/health")).status_code == 200
    with pytest.raises(ConnectionRefusedError):
        await worker.connect()


async def test_it_is_empty_once_the_last_connection_is_gone(mock: Any) -> None:
    worker = await mock()
    await worker.server.empty()
    clients = [await worker.connect() for _ in range(2)]
    empty = asyncio.ensure_future(worker.server.empty())
    clients[0][1].close()
    await asyncio.sleep(0.01)
    assert not empty.done()
    clients[1][1].close()
    await empty
    assert worker.server.connections == set()
