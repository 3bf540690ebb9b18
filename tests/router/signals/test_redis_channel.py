"""The channel over Redis, with a real one that is killed, restarted, stopped, filled with garbage and locked."""

import asyncio
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from router.signals import redis_channel as module
from router.signals.redis_channel import MOST_WAITING, RedisChannel, without_credentials
from tests.support.gateway import eventually

real = pytest.mark.system("redis-server")
PATIENCE = 0.3


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Server:
    """A Redis of the test's own. It keeps nothing over a restart."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def start(self, *flags: str) -> "Server":
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen([*command, *flags], cwd=self.folder, stdout=subprocess.DEVNULL)
        await eventually(self._listens)
        return self

    def _listens(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def tell(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    async def do(self, *command: Any, url: str | None = None) -> Any:
        client = Redis.from_url(url or self.url, protocol=2)
        try:
            return await client.execute_command(*command)
        finally:
            await client.connection_pool.disconnect()


@pytest.fixture
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        yield server
        server.kill()


class End(RedisChannel):
    """A channel that writes down what it hears."""

    def __init__(self, url: str, **options: Any) -> None:
        self.heard: list[bytes] = []
        super().__init__(url, self.hear, **{"patience": PATIENCE, **options})

    def hear(self, batch: bytes) -> None:
        self.heard.append(batch)


Open = Callable[..., End]


@pytest.fixture
async def channel(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    monkeypatch.setattr(module, "BLOCK", 0.5)
    monkeypatch.setattr(module, "MOST_DELAY", 0.2)
    made: list[End] = []

    def build(url: str, **options: Any) -> End:
        made.append(End(url, **options))
        return made[-1]

    yield build
    for each in made:
        await each.close()


async def connected(*ends: End) -> None:
    await eventually(lambda: all(end.connected for end in ends), "not connected")


@real
async def test_what_one_sends_the_others_hear_and_itself_does_not(server: Server, channel: Open) -> None:
    await server.start()
    one, two, three = (channel(server.url) for _ in range(3))
    await connected(one, two, three)
    one.send(b"first")
    one.send(b"\x00\xffsecond")
    await eventually(lambda: len(two.heard) == len(three.heard) == 2)
    two.send(b"third")
    await eventually(lambda: one.heard)
    assert two.heard == three.heard[:2] == [b"first", b"\x00\xffsecond"]
    assert one.heard == [b"third"]
    assert (one.sent, one.received, one.dropped) == (2, 1, 0)


@real
async def test_a_gateway_that_starts_later_hears_what_was_said_before_in_order(server: Server, channel: Open) -> None:
    await server.start()
    one = channel(server.url)
    batches = [b"%d" % at for at in range(100)]
    for batch in batches:
        one.send(batch)
    await eventually(lambda: one.sent == 100)
    late = channel(server.url)
    await eventually(lambda: len(late.heard) == 100)
    assert late.heard == batches


@real
async def test_a_family_hears_itself_only_as_it_was_before(server: Server, channel: Open) -> None:
    """Processes of one machine tell each other directly; one of them that is started anew must still catch up."""
    await server.start()
    one, brother, stranger = channel(server.url, family="x"), channel(server.url, family="x"), channel(server.url)
    await connected(one, brother, stranger)
    one.send(b"old")
    await eventually(lambda: stranger.heard)
    reborn = channel(server.url, family="x")
    await eventually(lambda: reborn.heard)
    one.send(b"new")
    stranger.send(b"last")
    await eventually(lambda: b"last" in brother.heard and b"last" in reborn.heard)
    assert stranger.heard == [b"old", b"new"]
    assert brother.heard == [b"last"]
    assert reborn.heard == [b"old", b"last"]


@real
async def test_groups_are_apart(server: Server, channel: Open) -> None:
    await server.start()
    one, other = channel(server.url, group="one"), channel(server.url, group="other")
    await connected(one, other)
    one.send(b"secret")
    other.send(b"mine")
    await eventually(lambda: one.sent and other.sent)
    await asyncio.sleep(0.1)
    assert one.heard == other.heard == []


@real
async def test_the_stream_is_bounded(server: Server, channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 50)
    await server.start("--stream-node-max-entries", "10")
    one = channel(server.url)
    for at in range(500):
        one.send(b"%d" % at)
        if at % 50 == 0:
            await eventually(lambda: not one._waiting)
    await eventually(lambda: one.sent == 500)
    assert await server.do("XLEN", "prefix_router:news") <= 60


async def test_without_redis_sending_costs_nothing_and_what_waits_is_bounded(
    server: Server, channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    one = channel(server.url)
    for at in range(MOST_WAITING + 10):
        one.send(b"%d" % at)
    await asyncio.sleep(0.5)
    assert (len(one._waiting), one.dropped, one.sent, one.connected) == (MOST_WAITING, 10, 0, False)
    assert one._waiting[0] == b"10", "the oldest went"
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1, "lost is told once"
    assert server.url in warnings[0].message


@real
async def test_a_redis_that_comes_late_gets_what_waited(server: Server, channel: Open) -> None:
    one, two = channel(server.url), channel(server.url)
    one.send(b"early")
    await asyncio.sleep(0.2)
    await server.start()
    await eventually(lambda: two.heard == [b"early"])


@real
async def test_a_redis_that_dies_and_comes_back_empty_is_used_again(
    server: Server, channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    await server.start()
    one, two = channel(server.url), channel(server.url)
    await connected(one, two)
    one.send(b"before")
    await eventually(lambda: two.heard)
    with caplog.at_level(logging.INFO, "router"):
        server.kill()
        await eventually(lambda: not one.connected and not two.connected)
        one.send(b"meanwhile")
        await asyncio.sleep(0.5)
        await server.start()
        await connected(one, two)
        one.send(b"after")
        await eventually(lambda: b"after" in two.heard)
    told = [record.levelname for record in caplog.records]
    assert told == ["WARNING", "WARNING", "INFO", "INFO"], "each tells once that it was lost, once that it is back"


@real
async def test_a_stream_begun_anew_by_an_earlier_clock_is_read_from_its_start(server: Server, channel: Open) -> None:
    await server.start()
    await server.do("XADD", "prefix_router:news", "99999999999999-5", "s", "x", "b", "from the future")
    one = channel(server.url)
    await eventually(lambda: one.heard)
    server.kill()
    await eventually(lambda: not one.connected)
    await server.start()
    await server.do("XADD", "prefix_router:news", "5-1", "s", "x", "b", "small name")
    await eventually(lambda: b"small name" in one.heard)


@real
async def test_a_redis_that_hangs_is_given_up_and_found_again(server: Server, channel: Open) -> None:
    await server.start()
    one, two = channel(server.url), channel(server.url)
    await connected(one, two)
    server.tell(signal.SIGSTOP)
    one.send(b"into the silence")
    await eventually(lambda: not one.connected and not two.connected)
    assert one.dropped + one.sent + len(one._waiting) >= 1
    for _ in range(1000):
        one.send(b"more")
    server.tell(signal.SIGCONT)
    await connected(one, two)
    one.send(b"heard")
    await eventually(lambda: b"heard" in two.heard)


@real
async def test_requests_never_notice_a_redis_that_hangs(server: Server, channel: Open) -> None:
    """The loop goes on as ever: no step of the channel holds it up."""
    await server.start()
    one = channel(server.url)
    await connected(one)
    server.tell(signal.SIGSTOP)
    loop = asyncio.get_running_loop()
    worst, turns, end = 0.0, 0, loop.time() + 1.0
    while (began := loop.time()) < end:
        one.send(b"x" * 100_000)
        await asyncio.sleep(0.001)
        worst, turns = max(worst, loop.time() - began), turns + 1
    server.tell(signal.SIGCONT)
    assert worst < 3.0, "a step that waited for it would wait for ever"
    assert turns > 10


@real
async def test_a_wrong_password_is_told_once_and_never_shown(
    server: Server, channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    await server.start("--requirepass", "the-right-one")
    one = channel(f"redis://me:the-wrong-one@127.0.0.1:{server.port}/0")
    await asyncio.sleep(1.0)
    assert not one.connected
    (record,) = [record for record in caplog.records if record.name == "router"]
    assert f"redis://127.0.0.1:{server.port}/0 cannot be used" in record.message
    assert "the-wrong-one" not in caplog.text
    right = channel(f"redis://:the-right-one@127.0.0.1:{server.port}/0")
    await connected(right)


@real
async def test_garbage_in_the_stream_is_passed_over(server: Server, channel: Open) -> None:
    await server.start()
    key = "prefix_router:news"
    one = channel(server.url)
    await server.do("XADD", key, "*", "unknown", "field")
    await server.do("XADD", key, "*", "s", "somebody")
    await server.do("XADD", key, "*", "b", "of nobody")
    await server.do("XADD", key, "*", b"\xff\x00", b"\xff", "b", b"good", "s", b"\xfe")
    await eventually(lambda: one.heard == [b"good"])
    assert (one.garbage, one.received, one.connected) == (3, 1, True)


@real
async def test_a_key_that_is_no_stream_is_told_once_and_used_once_it_is_gone(
    server: Server, channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    await server.start()
    await server.do("SET", "prefix_router:news", "somebody else's")
    one = channel(server.url)
    await asyncio.sleep(1.0)
    assert not one.connected
    assert len(caplog.records) == 1
    await server.do("DEL", "prefix_router:news")
    await connected(one)


@real
async def test_a_full_redis_refuses_news_and_that_is_told_once(
    server: Server, channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    await server.start()
    one, two = channel(server.url), channel(server.url)
    await connected(one, two)
    await server.do("CONFIG", "SET", "maxmemory", "1")
    with caplog.at_level(logging.INFO, "router"):
        for _ in range(8):
            one.send(b"no room")
            await asyncio.sleep(0.1)
        await eventually(lambda: one.dropped)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        await server.do("CONFIG", "SET", "maxmemory", "0")
        one.send(b"room")
        await eventually(lambda: b"room" in two.heard)
        await connected(one)
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@real
async def test_a_batch_that_cannot_be_taken_in_does_not_end_the_reading(server: Server, channel: Open) -> None:
    await server.start()
    one, two = channel(server.url), channel(server.url)
    await connected(one, two)

    def hear(batch: bytes) -> None:
        if batch == b"bad":
            raise ValueError("bad")
        two.heard.append(batch)

    two._on_batch = hear
    one.send(b"bad")
    one.send(b"good")
    await eventually(lambda: two.heard == [b"good"])


async def test_closing_leaves_no_task(server: Server, channel: Open) -> None:
    before = asyncio.all_tasks()
    one = channel(server.url)
    await asyncio.sleep(0.05)
    await one.close()
    await one.close()
    assert asyncio.all_tasks() == before


@real
async def test_closing_in_the_middle_of_a_read_leaves_no_task_and_no_connection(server: Server, channel: Open) -> None:
    await server.start()
    before = asyncio.all_tasks()
    one = channel(server.url)
    await connected(one)
    await one.close()
    assert asyncio.all_tasks() == before
    assert not one.connected
    clients = (await server.do("INFO", "clients"))["connected_clients"]
    assert clients == 1, "the one that asks"


@pytest.mark.parametrize("url", ["redis://127.0.0.1:notaport/0", "http://127.0.0.1:1"])
async def test_an_address_that_is_none_is_told_at_once(url: str) -> None:
    with pytest.raises(ValueError, match=re.compile("port|scheme", re.IGNORECASE)):
        RedisChannel(url, print)


async def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ImportError, match=re.escape("prefix-router[redis]")):
        RedisChannel("redis://127.0.0.1:1", print)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("rediss://user:p%40ss@host:1/2?ssl_ca_certs=x", "rediss://host:1/2"),
        ("redis://:pa@ss@[::1]:6379", "redis://[::1]:6379"),
        ("unix://user:secret@/run/redis.sock?db=1&password=secret", "unix:///run/redis.sock"),
    ],
)
def test_an_address_is_shown_without_its_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


async def test_the_delays_grow_and_are_never_the_same_for_all(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(module.asyncio, "sleep", note)
    one = RedisChannel(server.url, print)
    with suppress(TimeoutError):
        async with asyncio.timeout(5):
            while len(slept) < 9:
                await sleep(0.01)
    await one.close()
    assert all(0.05 * 2**at <= slept[at] <= 0.1 * 2**at for at in range(5))
    assert max(slept) <= module.MOST_DELAY
    assert len(set(slept)) == len(slept)
