"""Names of workers: looked up in the background, one at a time, and followed when they lead elsewhere."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from router.proxy.resolve import JUST_NOW, Name, Resolver, is_address
from tests.support.gateway import eventually
from tests.support.names import Names

NONE = socket.gaierror(socket.EAI_NONAME, "no such name")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def names() -> AsyncIterator[Names]:
    names = Names()
    names.at["w"] = ["10.0.0.1"]
    with names.serving():
        yield names


@pytest.fixture
async def resolver(names: Names) -> AsyncIterator[Resolver]:
    resolver = Resolver(Clock(), 3600.0)
    yield resolver
    resolver.close()
    await asyncio.sleep(0)


def named(resolver: Resolver, host: str = "w") -> Name:
    name = resolver.name(host)
    assert name is not None
    return name


def later(resolver: Resolver, seconds: float = JUST_NOW) -> None:
    resolver.clock.now += seconds  # type: ignore[attr-defined]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%eth0"])
async def test_an_address_costs_nothing(resolver: Resolver, host: str) -> None:
    assert is_address(host)
    assert resolver.name(host) is None
    assert len(resolver) == 0


async def test_a_name_is_looked_up_once_for_all_that_ask(resolver: Resolver, names: Names) -> None:
    name = named(resolver)
    assert named(resolver) is name
    assert await asyncio.gather(*(name.known() for _ in range(20))) == [["10.0.0.1"]] * 20
    assert names.asked["w"] == 1
    assert repr(name) == "<Name w at 10.0.0.1>"


async def test_what_is_known_is_answered_while_the_name_service_hangs(resolver: Resolver, names: Names) -> None:
    name = named(resolver)
    await name.known()
    names.gate.clear()
    later(resolver)
    for _ in range(50):
        name.look_up()
    assert await name.known() == ["10.0.0.1"]
    await asyncio.sleep(0)
    assert names.most_at_once == 1
    names.gate.set()


async def test_one_that_waits_may_leave_and_the_look_up_goes_on(resolver: Resolver, names: Names) -> None:
    names.gate.clear()
    name = named(resolver)
    waiting = asyncio.ensure_future(name.known())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    names.gate.set()
    assert await name.known() == ["10.0.0.1"]
    assert names.asked["w"] == 1


async def test_it_is_looked_up_again_after_its_time(resolver: Resolver, names: Names) -> None:
    resolver.seconds = 0.02
    name = named(resolver)
    await name.known()
    names.at["w"] = ["10.0.0.2"]
    await eventually(lambda: name.addresses == ("10.0.0.2",))
    await eventually(lambda: names.asked["w"] > 4)


async def test_what_was_found_just_now_is_not_looked_up_again(resolver: Resolver, names: Names) -> None:
    name = named(resolver)
    await name.known()
    for _ in range(10):
        await name.fresh()
    assert names.asked["w"] == 1
    later(resolver)
    await name.fresh()
    assert names.asked["w"] == 2


async def test_a_change_is_told_and_another_order_is_none(resolver: Resolver, names: Names) -> None:
    told: list[frozenset[str]] = []
    heard: list[int] = []
    resolver.moved = lambda _, gone: told.append(gone)
    names.at["w"] = ["10.0.0.1", "10.0.0.2"]
    name = named(resolver)
    name.listen(lambda: heard.append(name.version))
    await name.known()
    before = name.version
    for addresses in (["10.0.0.2", "10.0.0.1"], ["10.0.0.2", "10.0.0.3"]):
        names.at["w"] = list(addresses)
        later(resolver)
        await name.fresh()
    assert told == [frozenset({"10.0.0.1"})]
    assert heard == [before + 1]


async def test_the_address_that_served_last_comes_first(resolver: Resolver, names: Names) -> None:
    names.at["w"] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    name = named(resolver)
    name.preferred = "10.0.0.3"
    assert await name.known() == ["10.0.0.3", "10.0.0.1", "10.0.0.2"]


async def test_while_the_name_service_fails_the_old_addresses_are_kept(resolver: Resolver, names: Names) -> None:
    name = named(resolver)
    await name.known()
    names.at["w"] = NONE
    later(resolver)
    await name.fresh()
    assert await name.known() == ["10.0.0.1"]


async def test_a_name_that_is_not_there_is_an_error_until_it_is(resolver: Resolver, names: Names) -> None:
    names.at["w"] = NONE
    name = named(resolver)
    with pytest.raises(OSError, match="no such name"):
        await name.known()
    names.at["w"] = ["10.0.0.1"]
    later(resolver)
    assert await name.known() == ["10.0.0.1"]


async def test_a_name_too_long_for_dns_is_an_error(resolver: Resolver) -> None:
    with pytest.raises((OSError, UnicodeError)):
        await named(resolver, "x" * 70 + ".test").known()


async def test_names_that_nobody_uses_are_forgotten(resolver: Resolver, names: Names) -> None:
    resolver.seconds = 0.01
    name = named(resolver)
    await name.known()
    resolver.keep(["other"])
    assert len(resolver) == 0
    await asyncio.sleep(0.05)
    assert names.asked["w"] == 1
    assert named(resolver) is not name


async def test_once_closed_nothing_is_looked_up(resolver: Resolver, names: Names) -> None:
    names.gate.clear()
    name = named(resolver)
    await asyncio.sleep(0)
    resolver.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert name.look_up() is None
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("look up")] == []
