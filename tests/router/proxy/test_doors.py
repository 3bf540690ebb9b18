"""How connections are taken in. What a client sees of it is told in the stories."""

import asyncio
import os
from typing import Any

import pytest

from router.core.origin import Origins
from router.processes.listeners import bind
from router.proxy import doors
from router.proxy.doors import Headroom, OwnDoor, Terms, coming_from, open_door
from router.proxy.proxy_header import Origin

LINE = b"PROXY TCP4 203.0.113.9 192.0.2.1 40000 443\r\n"


class Noted(asyncio.Protocol):
    made: list["Noted"] = []  # noqa: RUF012
    client: Any = None
    data = b""

    def connection_made(self, transport: Any) -> None:
        self.transport, self.client = transport, transport.get_extra_info("peername")
        self.made.append(self)

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.transport.close()


@pytest.mark.parametrize("trusted", [Origins(["127.0.0.1"]), None], ids=["proxied", "plain"])
async def test_a_protocol_is_made_for_each_connection(trusted: Origins | None) -> None:
    Noted.made = []
    listener = bind("127.0.0.1", 0)
    door = await open_door(listener, Noted, Terms(None, 5.0, trusted))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(LINE + b"hello")
    await reader.read()
    [made] = Noted.made
    assert made.client[0] == ("203.0.113.9" if trusted else "127.0.0.1")
    assert made.data == (b"hello" if trusted else LINE + b"hello")
    writer.close()
    door.close()
    await door.wait_closed()
    listener.close()


async def test_a_door_that_closes_lets_those_go_that_are_not_in_yet() -> None:
    listener = bind("127.0.0.1", 0)
    door = OwnDoor(listener, Noted, Terms(None, 60.0, Origins(["127.0.0.1"])))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(LINE[:10])
    await writer.drain()
    await asyncio.sleep(0.05)
    door.close()
    await door.wait_closed()
    assert await reader.read() == b""
    writer.close()
    listener.close()


def test_the_header_names_the_client() -> None:
    protocol = Noted()
    transport = type("T", (), {"get_extra_info": lambda *_: ("127.0.0.1", 1)})()
    coming_from(protocol, Origin("203.0.113.9", 7)).connection_made(transport)
    assert protocol.client == ("203.0.113.9", 7)


async def test_few_descriptors_are_told_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listener = bind("127.0.0.1", 0)
    monkeypatch.setattr(doors, "LOOK_SECONDS", 0.01)
    headroom = Headroom(listener)
    await asyncio.sleep(0.05)
    assert caplog.text == ""
    lowest = os.dup(0)
    os.close(lowest)
    headroom._most = lowest + 1
    await asyncio.sleep(0.1)
    assert caplog.text.count("descriptors are in use") == 1
    headroom.close()
    await headroom.wait_closed()
    listener.close()
