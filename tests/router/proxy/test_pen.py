"""Writing at once what the socket takes, and the rest through the transport: nothing is lost, nothing overtakes."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

import tests.support.strategies  # noqa: F401 - the same examples everywhere
from router.proxy.pen import ONE_WRITE, Pen

Runner = Callable[[Coroutine[Any, Any, None]], None]
BOTH_LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


class Transport:
    """Holds what it is given. `size` counts none of what came in this turn of the loop, as uvloop's."""

    def __init__(self, taken: socket.socket | None, *, tls: bool = False) -> None:
        self.socket, self.tls = taken, tls
        self.held: list[bytes] = []
        self.size = 0
        self.closing = False

    def get_extra_info(self, name: str) -> Any:
        return {"socket": self.socket, "sslcontext": object() if self.tls else None}.get(name)

    def get_write_buffer_size(self) -> int:
        return self.size

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes | memoryview) -> None:
        self.held.append(bytes(data))


class Ends:
    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        for end in (self.ours, self.theirs):
            end.setblocking(False)
        self.transport = Transport(self.ours)
        self.pen = Pen(self.transport)  # type: ignore[arg-type]

    def read(self) -> bytes:
        data = b""
        while True:
            try:
                more = self.theirs.recv(1 << 20)
            except BlockingIOError:
                return data
            if not more:
                return data
            data += more

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    both = Ends()
    yield both
    both.close()


async def test_what_fits_goes_out_at_once(ends: Ends) -> None:
    ends.pen.begin()
    ends.pen.write([b"head", b"body"])
    assert (ends.read(), ends.transport.held) == (b"headbody", [])


async def test_before_it_has_begun_all_goes_through_the_transport(ends: Ends) -> None:
    ends.pen.write([b"head", b"body"])
    assert (ends.read(), ends.transport.held) == (b"", [b"headbody"])


async def test_while_the_transport_holds_something_nothing_overtakes_it(ends: Ends) -> None:
    ends.transport.size = 1
    ends.pen.begin()
    ends.pen.write([b"later"])
    assert (ends.read(), ends.transport.held) == (b"", [b"later"])


async def test_what_the_socket_does_not_take_and_all_that_follows_goes_through_the_transport(ends: Ends) -> None:
    ends.pen.begin()
    large = bytes(range(256)) * 65_536
    ends.pen.write([b"head", large])
    ends.pen.write([b"more"])
    read = ends.read()
    assert read[:4] == b"head"
    assert 0 < len(read) < len(large)
    ends.pen.write([b"and more"])
    assert ends.read() == b"", "the socket has room again, but the transport's part comes first"
    assert read + b"".join(ends.transport.held) == b"head" + large + b"moreand more"


async def test_a_closing_connection_is_never_written_to_by_its_descriptor(ends: Ends) -> None:
    """The descriptor may be another connection's soon."""
    ends.pen.begin()
    ends.transport.closing = True
    ends.pen.write([b"x"])
    assert (ends.read(), ends.transport.held) == (b"", [b"x"])


async def test_a_tls_connection_is_only_written_to_by_its_transport() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport = Transport(ours, tls=True)
        pen = Pen(transport)  # type: ignore[arg-type]
        pen.begin()
        pen.write([b"secret"])
        assert transport.held == [b"secret"]


async def test_a_broken_connection_is_left_to_the_transport_to_find(ends: Ends) -> None:
    ends.pen.begin()
    ends.theirs.close()
    ends.pen.write([b"head", b"body"])
    assert ends.transport.held == [b"head", b"body"]


async def test_a_large_body_is_not_copied_behind_its_head(ends: Ends) -> None:
    body = b"x" * ONE_WRITE
    ends.pen.write([b"head", body])
    assert ends.transport.held == [b"head", body]


@given(st.lists(st.lists(st.binary(min_size=1, max_size=300_000), min_size=1, max_size=4), max_size=6))
async def test_all_arrives_in_order_whatever_the_sizes(writes: list[list[bytes]]) -> None:
    ends = Ends()
    for pieces in writes:
        ends.pen.begin()
        ends.pen.write(pieces)
    assert ends.read() + b"".join(ends.transport.held) == b"".join(b"".join(pieces) for pieces in writes)
    ends.close()


async def test_in_the_turn_in_which_the_transport_was_handed_something_nothing_goes_at_once(ends: Ends) -> None:
    """uvloop does not count it yet; a reader that made room meanwhile would get the next answer first."""
    large = bytes(1 << 24)
    ends.pen.begin()
    ends.pen.write([large])
    read = ends.read()
    ends.pen.begin()
    ends.pen.write([b"next"])
    assert ends.read() == b""
    assert read + b"".join(ends.transport.held) == large + b"next"
    await asyncio.sleep(0)
    ends.transport.held.clear()
    ends.pen.begin()
    ends.pen.write([b"later"])
    assert ends.read() == b"later"


@BOTH_LOOPS
def test_answers_one_after_the_other_in_one_turn_keep_their_order_on_a_real_connection(run: Runner) -> None:
    run(_answers_in_one_turn())


async def _answers_in_one_turn() -> None:
    answers = [bytes([number]) * 60_000 for number in range(200)]

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            pen = Pen(transport)  # type: ignore[arg-type]
            for answer in answers:
                pen.begin()
                pen.write([answer])
            transport.close()

    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read(-1) == b"".join(answers)
    writer.close()
    server.close()


@BOTH_LOOPS
def test_on_a_real_connection_a_slow_reader_gets_all_in_order(run: Runner) -> None:
    run(_slow_reader())


async def _slow_reader() -> None:
    whole = [bytes([number]) * 200_000 for number in range(40)]
    done = asyncio.Event()

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.pen = Pen(transport)  # type: ignore[arg-type]
            self.pen.begin()
            for piece in whole:
                self.pen.write([piece])
            transport.close()
            done.set()

    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await done.wait()
    await asyncio.sleep(0.05)
    assert await reader.read(-1) == b"".join(whole)
    writer.close()
    server.close()
