"""How a connection to a worker comes about: by address, by name, and by a name that leads elsewhere now."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Coroutine
from time import monotonic
from typing import Any

import pytest

from router.proxy.resolve import JUST_NOW, Resolver
from router.proxy.sweep import Sweep
from router.proxy.upstream import Limits, Pool
from router.types import worker_from_url
from tests.router.proxy.test_upstream import Noted
from tests.support.gateway import eventually
from tests.support.names import Names
from tests.support.worker import Worker, full_backlog, stream

OLD, NEW, NOBODY = "127.0.0.1", "127.0.0.2", "127.0.0.9"


class Town:
    """Workers on one port of several addresses, a name, and a pool for it."""

    def __init__(self, names: Names, resolver: Resolver, workers: list[Worker]) -> None:
        self.names, self.resolver, self.workers = names, resolver, workers
        self.old, self.new = workers
        url = f"http://w.test:{self.old.port}"
        self.pool = Pool(worker_from_url(url), Sweep(monotonic, 0.02), Limits(5.0, 5.0, 5.0), names=resolver)

    async def ask(self) -> Noted:
        noted = Noted()
        self.pool.send(b"POST /x%scontent-length: 2\r\n\r\n" % self.pool.greeting, b"{}", noted, monotonic())
        await eventually(lambda: noted.over)
        return noted

    async def move(self, *addresses: str) -> None:
        """The name leads there now, and that was noticed."""
        self.names.at["w.test"] = list(addresses)
        await asyncio.sleep(JUST_NOW + 0.05)
        assert self.pool.name is not None
        await self.pool.name.fresh()

    @property
    def served(self) -> list[int]:
        return [len(worker.requests) for worker in self.workers]


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    names = Names()
    names.at["w.test"] = [OLD]
    old = await Worker().listen()
    new = await Worker(host=NEW, port=old.port).listen()
    with names.serving():
        resolver = Resolver(monotonic, 3600.0)
        town = Town(names, resolver, [old, new])
        yield town
        town.pool.close()
        resolver.close()
        for each in list(town.pool.sweep):
            each.cancel()  # type: ignore[attr-defined]
    await old.close()
    await new.close()
    await eventually(lambda: town.pool.sweep._timer is None)


async def test_a_name_is_connected_to_by_its_address(town: Town) -> None:
    assert (await town.ask()).status == 200
    assert town.served == [1, 0]
    assert town.old.requests[0].one("host") == f"w.test:{town.old.port}".encode()


async def test_all_addresses_are_tried_in_turn(town: Town) -> None:
    await town.move(NOBODY, NEW)
    assert (await town.ask()).status == 200
    assert town.served == [0, 1]
    assert town.pool.name is not None
    assert town.pool.name.preferred == NEW


async def test_a_connection_that_is_refused_looks_the_name_up_afresh(town: Town) -> None:
    await town.ask()
    await asyncio.sleep(JUST_NOW + 0.05)
    town.names.at["w.test"] = [NEW]
    await town.old.refuse()
    await eventually(lambda: "0 idle" in repr(town.pool))
    assert (await town.ask()).status == 200
    assert town.served == [1, 1]
    assert town.names.asked["w.test"] == 2


async def test_one_that_does_not_come_about_looks_it_up_too(town: Town) -> None:
    listener, queue, port = full_backlog()
    pool = Pool(worker_from_url(f"http://w.test:{port}"), Sweep(monotonic, 0.02), Limits(0.4), names=town.resolver)
    noted = Noted()
    pool.send(b"", b"", noted, monotonic())
    await eventually(lambda: noted.over)
    assert noted.told == ["ConnectTimeout"]
    await eventually(lambda: town.names.asked["w.test"] == 2)
    for each in (listener, *queue):
        each.close()


async def test_when_all_refuse_it_is_unreachable_and_each_was_tried_once(town: Town) -> None:
    await town.move(NOBODY, "127.0.0.8")
    assert (await town.ask()).told == ["Unreachable"]


async def test_a_name_that_is_not_there_is_unreachable(town: Town) -> None:
    town.names.at["nowhere.test"] = OSError(errno.EINVAL, "no such name")
    pool = Pool(worker_from_url("http://nowhere.test"), Sweep(monotonic, 0.02), Limits(5.0), names=town.resolver)
    noted = Noted()
    pool.send(b"", b"", noted, monotonic())
    await eventually(lambda: noted.over)
    assert noted.told == ["Unreachable"]


async def test_a_kept_connection_to_an_address_that_is_gone_is_closed(town: Town) -> None:
    """The old one still answers."""
    await town.ask()
    assert "1 idle" in repr(town.pool)
    await town.move(NEW)
    assert "0 idle" in repr(town.pool)
    assert (await town.ask()).status == 200
    assert town.served == [1, 1]


async def test_one_that_was_busy_meanwhile_finishes_and_is_closed_then(town: Town) -> None:
    gate = asyncio.Event()
    town.old.answer = stream(b"a", gate, b"b")
    noted = Noted()
    town.pool.send(b"POST /x%scontent-length: 2\r\n\r\n" % town.pool.greeting, b"{}", noted, monotonic())
    await eventually(lambda: noted.data == b"a")
    await town.move(NEW)
    gate.set()
    await eventually(lambda: noted.over)
    assert (noted.told[-1], noted.data) == ("end", b"ab")
    assert "0 idle" in repr(town.pool)


class Socket:
    """A transport that notes its end and tells nobody, as uvloop's does where its making is cancelled."""

    aborted = False
    written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> None:
        """No socket: all is written here."""


class Halfway:
    """A loop in which a connection is made, and whoever wanted it does not hear of it yet."""

    def __init__(self) -> None:
        self.sockets: list[Socket] = []

    async def create_connection(self, protocol: Callable[[], Any], *_: object, **__: object) -> None:
        self.sockets.append(Socket())
        protocol().connection_made(self.sockets[-1])
        await asyncio.Event().wait()

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coroutine)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://w.test:9"])
async def test_one_that_is_cancelled_just_when_it_was_made_keeps_no_place(town: Town, url: str) -> None:
    pool = Pool(worker_from_url(url), Sweep(monotonic, 0.02), Limits(5.0, connections=1), names=town.resolver)
    pool.loop = loop = Halfway()  # type: ignore[assignment]
    for turn in range(1, 4):
        connection = pool.send(b"HEAD", b"", Noted(), monotonic())
        await eventually(lambda turn=turn: len(loop.sockets) == turn)
        connection.cancel()
        await eventually(lambda: not pool._open)
        assert loop.sockets[-1].aborted


async def test_what_was_sent_when_its_time_was_up_is_sent_nowhere_else(town: Town) -> None:
    await town.move(OLD, NEW)
    town.pool.loop = loop = Halfway()  # type: ignore[assignment]
    town.pool.go_by(Limits(0.2, 5.0, 5.0))
    noted = Noted()
    town.pool.send(b"HEAD", b"", noted, monotonic())
    await eventually(lambda: noted.over)
    assert noted.told == ["BrokenAnswer"]
    await asyncio.sleep(0.2)
    assert [each.written for each in loop.sockets] == [b"HEAD"]
