"""How many clients at a time: those beyond half of the descriptors wait to be taken, and are served in turn."""

import asyncio
import resource
from types import SimpleNamespace
from typing import Any

import pytest

from router.processes.listeners import bind
from router.proxy.crowd import BESIDE, PLENTY, Crowd, raise_limit
from router.proxy.doors import Terms, open_door


def crowd(there: Any, most: int) -> Crowd:
    made = Crowd(there, PLENTY)
    made.most = most
    return made


def kept(*, idle: bool, asking: bool = False) -> Any:
    """A connection as uvicorn has it; `told` is whether it was closed."""
    told: list[str] = []
    transport = SimpleNamespace(close=lambda: told.append("closed"))
    cycle = SimpleNamespace(response_complete=idle)
    return SimpleNamespace(cycle=cycle, transport=transport, told=told, in_message=asking)


@pytest.mark.parametrize(
    ("descriptors", "most"), [(100, 30 + BESIDE), (2040, 1000 + BESIDE), (10, 1 + BESIDE), (PLENTY, None)]
)
def test_a_client_needs_two_descriptors_where_they_are_few(descriptors: int, most: int | None) -> None:
    assert Crowd((), descriptors).most == most


async def test_nobody_waits_while_there_is_room() -> None:
    await crowd([kept(idle=False)], 2).place()


async def test_one_that_waits_comes_in_when_another_has_left() -> None:
    there = [kept(idle=False), kept(idle=False)]
    waiting = asyncio.create_task(crowd(there, 2).place())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    there.pop()
    await asyncio.wait_for(waiting, 5)


async def test_those_that_are_coming_in_count_too() -> None:
    waiting = asyncio.create_task(crowd([kept(idle=False)], 2).place([None]))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    waiting.cancel()


async def test_a_kept_and_idle_connection_makes_room_and_a_busy_one_does_not() -> None:
    busy, asking, idle = kept(idle=False), kept(idle=True, asking=True), kept(idle=True)
    waiting = asyncio.create_task(crowd([busy, asking, idle], 3).place())
    await asyncio.sleep(0.05)
    waiting.cancel()
    assert idle.told
    assert not busy.told
    assert not asking.told


def test_the_limit_is_raised_as_far_as_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        assert raise_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert raise_limit() >= 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_clients_beyond_the_crowd_wait_at_the_door_and_all_are_answered() -> None:
    there: set[Any] = set()
    most_at_once = 0

    class Polite(asyncio.Protocol):
        cycle = None

        def connection_made(self, transport: Any) -> None:
            nonlocal most_at_once
            self.transport = transport
            there.add(self)
            most_at_once = max(most_at_once, len(there))

        def data_received(self, data: bytes) -> None:
            asyncio.get_running_loop().call_later(0.02, self.transport.write, data)
            asyncio.get_running_loop().call_later(0.03, self.transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            there.discard(self)

    listener = bind("127.0.0.1", 0)
    door = await open_door(listener, Polite, Terms(None, 5.0, crowd=crowd(there, 4)))

    async def client() -> bytes:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"hello")
        answer = await reader.read()
        writer.close()
        return answer

    answers = await asyncio.wait_for(asyncio.gather(*(client() for _ in range(20))), 20)
    assert answers == [b"hello"] * 20
    assert most_at_once <= 4
    door.close()
    await door.wait_closed()
    listener.close()
