"""One connection to a worker: what its receiver hears, in which order, and how failures are named."""

import asyncio
import errno
from collections.abc import AsyncIterator

import pytest

from router.proxy import exchange
from router.proxy.pen import ONE_WRITE, Pen
from router.proxy.sweep import Sweep
from router.proxy.upstream import Limits, Pool
from router.types import worker_from_url
from tests.support.gateway import eventually


class Receiver:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.cancel_at: str | None = None
        self.connection: exchange.Connection | None = None

    def _note(self, what: str) -> None:
        self.told.append(what)
        if self.cancel_at is not None and what.startswith(self.cancel_at):
            assert self.connection is not None
            self.connection.cancel()

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]], length: int | None) -> None:
        names = ",".join(name.decode() for name, _ in headers)
        self._note(f"head {status} {length} {names}")

    def on_body(self, pieces: list[bytes]) -> None:
        self._note("body " + "|".join(piece.decode() for piece in pieces))

    def on_read(self) -> None:
        self._note("read")

    def on_end(self) -> None:
        self._note("end")

    def on_failure(self, failure: Exception) -> None:
        self._note(type(failure).__name__)


class Transport:
    """What a connection writes, and whether it reads."""

    def __init__(self) -> None:
        self.written = b""
        self.reading = True
        self.closed = False
        self.unsent = 0

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> None:
        """No socket: all is written here."""

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Line:
    """A connection with both ends in hand."""

    def __init__(self, pool: Pool) -> None:
        self.connection = exchange.Connection(pool)
        self.transport = Transport()
        self.connection._transport = self.transport  # type: ignore[assignment]
        self.connection._pen = Pen(self.transport)  # type: ignore[arg-type]

    def send(self, head: bytes = b"HEAD", body: bytes = b"BODY", cancel_at: str | None = None) -> Receiver:
        receiver = Receiver()
        receiver.cancel_at, receiver.connection = cancel_at, self.connection
        self.connection.send(head, body, receiver, self.connection.pool.sweep.clock())
        return receiver

    def hears(self, *reads: bytes) -> None:
        for data in reads:
            self.connection.data_received(data)


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = Pool(worker_from_url("http://127.0.0.1:9"), Sweep(Time(), 0.01), Limits(1.0, 10.0, 5.0))
    yield pool
    for each in list(pool.sweep):
        pool.sweep.forget(each)
    await eventually(lambda: pool.sweep._timer is None)


@pytest.fixture
async def line(pool: Pool) -> Line:
    return Line(pool)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


async def test_one_read_is_told_head_body_end(line: Line) -> None:
    receiver = line.send()
    assert line.transport.written == b"HEADBODY"
    line.hears(OK)
    assert receiver.told == ["head 200 5 content-length", "body hello", "end"]
    assert not line.connection.busy
    assert "1 idle" in repr(line.connection.pool)


@pytest.mark.parametrize("size", [1, 7, 30])
async def test_however_it_is_cut_the_same_is_told(line: Line, size: int) -> None:
    receiver = line.send()
    line.hears(*[OK[at : at + size] for at in range(0, len(OK), size)])
    heads = [told for told in receiver.told if told.startswith("head")]
    bodies = [told.removeprefix("body ") for told in receiver.told if told.startswith("body")]
    assert heads == ["head 200 5 content-length"]
    assert "".join(bodies).replace("|", "") == "hello"
    assert receiver.told[-1] == "end"
    assert receiver.told.count("end") == 1


async def test_every_read_that_goes_on_is_told_at_its_end(line: Line) -> None:
    receiver = line.send()
    line.hears(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nab\r\n1\r\nc\r\n", b"0\r\n\r\n")
    assert receiver.told == ["head 200 None transfer-encoding", "read", "body ab|c", "read", "end"]


async def test_a_large_body_is_not_copied_behind_its_head(line: Line) -> None:
    written: list[bytes] = []
    line.transport.write = written.append  # type: ignore[method-assign]
    body = b"x" * ONE_WRITE
    line.send(b"HEAD", body)
    assert written == [b"HEAD", body]
    assert written[1] is body


@pytest.mark.parametrize("cancel_at", ["head", "body", "read", "end"])
async def test_a_receiver_may_cancel_at_every_step(line: Line, cancel_at: str) -> None:
    receiver = line.send(cancel_at=cancel_at)
    line.hears(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc", b"def")
    assert receiver.told[-1].startswith(cancel_at)
    assert line.transport.closed
    line.connection.connection_lost(None)
    assert receiver.told[-1].startswith(cancel_at)


NO_MORE = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
KEPT = {
    "1.1": (OK, True), "1.0": (OK.replace(b"1.1", b"1.0", 1), False), "close": (NO_MORE, False),
    "more than it said": (OK + b"more", False), "two answers": (OK + OK, False),
    "204": (b"HTTP/1.1 204 No\r\n\r\n", True), "304": (b"HTTP/1.1 304 No\r\n\r\n", True),
}  # fmt: skip


@pytest.mark.parametrize(("answer", "kept"), KEPT.values(), ids=KEPT)
async def test_what_is_kept_for_the_next_request(line: Line, answer: bytes, kept: bool) -> None:
    receiver = line.send()
    line.hears(answer)
    assert receiver.told[-1] == "end"
    assert line.transport.closed is not kept
    assert (f"{int(kept)} idle") in repr(line.connection.pool)


async def test_one_on_which_the_request_still_goes_out_is_not_kept(line: Line) -> None:
    """The worker answered early; what is left of the request must not stand before the next one."""
    receiver = line.send()
    line.transport.unsent = 1
    line.hears(OK)
    assert receiver.told[-1] == "end"
    assert line.transport.closed


async def test_an_answer_without_framing_ends_with_the_connection(line: Line) -> None:
    receiver = line.send()
    line.hears(b"HTTP/1.1 200 OK\r\n\r\nabc")
    line.connection.connection_lost(None)
    assert receiver.told == ["head 200 None ", "body abc", "read", "end"]


BROKEN = {
    "nothing": ((), None),
    "half a head": ((b"HTTP/1.1 200",), None),
    "short of its length": ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",), None),
    "between chunks": ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",), None),
    "reset without a length": ((b"HTTP/1.1 200 OK\r\n\r\nabc",), ConnectionResetError()),
}


@pytest.mark.parametrize(("reads", "error"), BROKEN.values(), ids=BROKEN)
async def test_a_connection_that_breaks_is_a_broken_answer(
    line: Line, reads: tuple[bytes, ...], error: Exception | None
) -> None:
    receiver = line.send()
    line.hears(*reads)
    line.connection.connection_lost(error)
    assert receiver.told[-1] == "BrokenAnswer"
    assert not line.connection.busy


async def test_a_kept_connection_that_breaks_at_once_was_stale_and_later_it_was_not(pool: Pool) -> None:
    for after, told in ((0.0, "StaleConnection"), (exchange.STALE_SECONDS, "BrokenAnswer")):
        line = Line(pool)
        line.send()
        line.hears(OK)
        receiver = line.send()
        pool.sweep.clock.now += after  # type: ignore[attr-defined]
        line.connection.connection_lost(None)
        assert receiver.told == [told]


async def test_a_new_connection_that_breaks_at_once_was_not_stale(line: Line) -> None:
    receiver = line.send()
    line.connection.connection_lost(None)
    assert receiver.told == ["BrokenAnswer"]


async def test_an_idle_connection_has_nothing_to_say(line: Line) -> None:
    line.send()
    line.hears(OK)
    line.hears(OK)
    assert line.transport.closed
    assert "0 idle" in repr(line.connection.pool)


async def test_the_limits_follow_each_other(line: Line) -> None:
    connection, clock = line.connection, line.connection.pool.sweep.clock
    receiver = line.send()
    assert connection.deadline == 10.0
    clock.now = 3.0  # type: ignore[attr-defined]
    line.hears(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
    assert connection.deadline == 8.0
    connection.overdue(8.0)
    assert receiver.told[-1] == "IdleTimeout"
    assert line.transport.closed


async def test_silence_before_any_answer_has_its_own_name(line: Line) -> None:
    receiver = line.send()
    line.connection.overdue(10.0)
    assert receiver.told == ["FirstByteTimeout"]


async def test_while_the_client_is_slow_the_workers_silence_is_not_its_own(line: Line) -> None:
    connection, clock = line.connection, line.connection.pool.sweep.clock
    line.send()
    line.hears(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
    connection.pause()
    assert not line.transport.reading
    assert connection.deadline == float("inf")
    line.hears(b"abc")  # what was read before
    assert connection.deadline == float("inf")
    clock.now = 100.0  # type: ignore[attr-defined]
    connection.resume()
    assert line.transport.reading
    assert connection.deadline == 105.0


async def test_a_paused_connection_reads_again_when_it_rests(line: Line) -> None:
    line.send()
    line.connection.pause()
    line.hears(OK)
    assert line.transport.reading


async def test_a_connection_that_rests_unused_is_closed_in_time(line: Line) -> None:
    line.send()
    line.hears(OK)
    assert line.connection.deadline == exchange.UNUSED_SECONDS
    line.connection.overdue(exchange.UNUSED_SECONDS)
    assert line.transport.closed


@pytest.mark.parametrize(
    ("number", "told"),
    [(errno.ECONNREFUSED, "Unreachable"), (errno.EHOSTUNREACH, "Unreachable"), (errno.EMFILE, "LocalTrouble"),
     (errno.ENFILE, "LocalTrouble"), (errno.EADDRNOTAVAIL, "LocalTrouble")],
)  # fmt: skip
async def test_why_it_could_not_connect(pool: Pool, number: int, told: str) -> None:
    class Loop:
        async def create_connection(self, *_: object, **__: object) -> None:
            raise OSError(number, "no")

        def create_task(self, coroutine: object) -> object:
            return asyncio.ensure_future(coroutine)  # type: ignore[call-overload]

    pool.loop = Loop()  # type: ignore[assignment]
    receiver = Receiver()
    pool.send(b"HEAD", b"", receiver, 0.0)
    await eventually(lambda: receiver.told)
    assert receiver.told == [told]
    assert pool.busy() == 0


async def test_connecting_has_a_limit_and_can_be_cancelled(pool: Pool) -> None:
    cancelled: list[bool] = []

    class Loop:
        async def create_connection(self, *_: object, **__: object) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(True)

        def create_task(self, coroutine: object) -> object:
            return asyncio.ensure_future(coroutine)  # type: ignore[call-overload]

    pool.loop = Loop()  # type: ignore[assignment]
    receiver = Receiver()
    connection = pool.send(b"HEAD", b"", receiver, 0.0)
    await asyncio.sleep(0)
    assert not connection.is_open
    assert connection.deadline == 1.0
    connection.overdue(1.0)
    assert receiver.told == ["ConnectTimeout"]
    connection = pool.send(b"HEAD", b"", Receiver(), 0.0)
    await asyncio.sleep(0)
    connection.cancel()
    await eventually(lambda: len(cancelled) == 2)
    assert pool.busy() == 0


async def test_one_that_connects_after_its_receiver_left_is_closed(pool: Pool) -> None:
    connection = exchange.Connection(pool)
    transport = Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    assert transport.closed
    assert transport.written == b""


async def test_a_client_that_stops_reading_while_it_connects_holds_up_the_answer(pool: Pool) -> None:
    """As when a stream goes on at another worker: its client may be slow all along."""

    class Loop:
        def create_task(self, coroutine: object) -> object:
            coroutine.close()  # type: ignore[attr-defined]
            return asyncio.ensure_future(asyncio.sleep(0))

    pool.loop = Loop()  # type: ignore[assignment]
    connection = pool.send(b"HEAD", b"", Receiver(), 0.0)
    assert isinstance(connection, exchange.Connection)
    connection.pause()
    assert connection.deadline == 1.0, "connecting has its limit all the same"
    transport = Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    assert transport.written == b"HEAD"
    assert not transport.reading
    assert connection.deadline == float("inf")
    connection.resume()
    assert transport.reading
    connection.cancel()
