"""Who the client is: its own address, or whom a trusted proxy speaks for."""

import asyncio
import socket
from typing import Any

import pytest

from tests.support.client import Client, get, post
from tests.support.gateway import Running, Stage, ask, eventually

TRUSTED = {"trusted_proxies": ["127.0.0.0/8"]}
PROXIED = {**TRUSTED, "proxy_protocol": True}
LINE = b"PROXY TCP4 203.0.113.9 192.0.2.1 40000 443\r\n"
MARK = b"\r\n\r\n\x00\r\nQUIT\n"
LOCAL = MARK + b"\x20\x00\x00\x00"


def block(source: str, destination: str, extra: bytes = b"", command: int = 0x21) -> bytes:
    """A version 2 header."""
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    addresses = socket.inet_pton(family, source) + socket.inet_pton(family, destination)
    body = addresses + (40000).to_bytes(2, "big") + (443).to_bytes(2, "big") + extra
    kind = 0x21 if family == socket.AF_INET6 else 0x11
    return MARK + bytes((command, kind)) + len(body).to_bytes(2, "big") + body


async def client_of(running: Running, *headers: tuple[str, str], before: bytes = b"") -> str:
    assert (await ask(running.port, before + post(headers=headers))).status == 200
    return running.finished[-1].client


# X-Forwarded-For.


CHAINS = {
    "203.0.113.9": "203.0.113.9",
    "198.51.100.1, 203.0.113.9": "203.0.113.9",
    "198.51.100.1, 203.0.113.9, 127.0.0.7": "203.0.113.9",
    "203.0.113.9:5555": "203.0.113.9",
    "2001:db8::1": "2001:db8::1",
    "[2001:db8::1]:443": "2001:db8::1",
    "::ffff:203.0.113.9": "203.0.113.9",
    "127.0.0.8, 127.0.0.7": "127.0.0.8",
    "203.0.113.9, unknown": "127.0.0.1",
    "203.0.113.9, unknown, 127.0.0.7": "127.0.0.7",
    "not an address": "127.0.0.1",
    "": "127.0.0.1",
    ",,,": "127.0.0.1",
}


async def test_a_trusted_proxy_names_the_client(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), listen=TRUSTED)
    for chain, client in CHAINS.items():
        assert await client_of(running, ("X-Forwarded-For", chain)) == client, chain
    assert await client_of(running) == "127.0.0.1"


async def test_two_lines_are_one_list(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), listen=TRUSTED)
    lines = [("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-For", "203.0.113.9, 127.0.0.7")]
    assert await client_of(running, *lines) == "203.0.113.9"


@pytest.mark.parametrize("listen", [{}, {"trusted_proxies": ["10.0.0.0/8"]}], ids=["nobody", "somebody else"])
async def test_an_untrusted_peer_is_not_believed(stage: Stage, listen: dict[str, Any]) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, listen=listen)
    assert await client_of(running, ("X-Forwarded-For", "203.0.113.9")) == "127.0.0.1"
    assert worker.requests[0].one("x-forwarded-for") == b"203.0.113.9", "it reaches the worker as it came"


async def test_the_app_sees_the_same_client(stage: Stage) -> None:
    """The admin routes answer the loopback; a client behind a trusted proxy is not there."""
    running = await stage.gateway(await stage.worker(), listen=TRUSTED)
    assert (await ask(running.port, get("/admin/workers"))).status == 200
    assert (await ask(running.port, get("/admin/workers", "X-Forwarded-For: 203.0.113.9"))).status == 403
    assert (await ask(running.port, get("/admin/workers", "X-Forwarded-For: 127.0.0.1"))).status == 200
    assert (await ask(running.port, get("/admin/workers", "X-Forwarded-For: unknown"))).status == 403


async def test_a_trusted_proxy_may_say_that_the_client_is_on_the_loopback_where_the_loopback_is_not_trusted(
    stage: Stage,
) -> None:
    running = await stage.gateway(await stage.worker(), listen={"trusted_proxies": ["127.0.0.1"]})
    for named, status in (("127.0.0.2", 200), ("127.0.0.1", 200), ("203.0.113.9", 403), ("127.0.0.2, unknown", 403)):
        assert (await ask(running.port, get("/admin/workers", f"X-Forwarded-For: {named}"))).status == status, named


async def test_what_no_worker_was_asked_names_its_client_too(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), listen=TRUSTED)
    for path in ("/v1/models", "/nowhere", "/v1/completions"):
        await ask(running.port, get(path, "X-Forwarded-For: 203.0.113.9"))
        assert running.finished[-1].client == "203.0.113.9", path
    await ask(running.port, b"GET / HTTP/1.1\r\n\r\n")
    assert running.finished[-1].client == "127.0.0.1", "a head that cannot be read has no header to believe"


# The PROXY protocol.


HEADERS = {
    LINE: "203.0.113.9",
    b"PROXY TCP6 2001:db8::1 2001:db8::2 40000 443\r\n": "2001:db8::1",
    b"PROXY UNKNOWN\r\n": "127.0.0.1",
    b"PROXY UNKNOWN ffff:f...f:ffff 65535 65535\r\n": "127.0.0.1",
    block("203.0.113.9", "192.0.2.1"): "203.0.113.9",
    block("2001:db8::1", "2001:db8::2"): "2001:db8::1",
    block("::ffff:203.0.113.9", "2001:db8::2"): "203.0.113.9",
    block("203.0.113.9", "192.0.2.1", extra=b"\x04\x00\x01x" * 200): "203.0.113.9",
    block("203.0.113.9", "192.0.2.1", command=0x20): "127.0.0.1",
    LOCAL: "127.0.0.1",
}
BAD_HEADERS = {
    "none": b"",
    "half a mark": MARK[:6] + b"GET / HTTP/1.1\r\n\r\n",
    "an address that is none": LINE.replace(b"203.0.113.9", b"203.0.113.900"),
    "another family": LINE.replace(b"TCP4", b"TCP6"),
    "a family that is none": LINE.replace(b"TCP4", b"TCP5"),
    "a port that is none": LINE.replace(b"40000", b"70000"),
    "a port in another writing": LINE.replace(b"40000", b"04000"),
    "too few words": b"PROXY TCP4 203.0.113.9\r\n",
    "too many words": LINE.replace(b"443", b"443 1"),
    "a line feed alone": LINE.replace(b"\r\n", b"\n"),
    "a line without an end": b"PROXY TCP4 " + b"1" * 200,
    "version 3": MARK + b"\x31\x11\x00\x00",
    "a command that is none": MARK + b"\x22\x11\x00\x0c" + b"\x01" * 12,
    "a block that is too short": MARK + b"\x21\x11\x00\x04" + b"\x01" * 4,
    "a block without bounds": MARK + b"\x21\x11\xff\xff" + b"\x01" * 100,
}


async def test_a_trusted_peer_says_whose_connection_it_is(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), listen=PROXIED)
    running.before = LINE
    for header, client in HEADERS.items():
        assert await client_of(running, before=header) == client, header
        assert (await ask(running.port, header, get("/healthz"))).status == 200


async def test_it_holds_for_the_whole_connection_and_the_proxys_own_word_goes_on_from_there(stage: Stage) -> None:
    running = await stage.gateway(await stage.worker(), listen=PROXIED)
    running.before = LINE
    client = await stage.client(running)
    await client.send(LINE)
    for _ in range(3):
        assert (await client.ask(post())).status == 200
        assert running.finished[-1].client == "203.0.113.9"
    forged = ("X-Forwarded-For", "198.51.100.1")
    assert await client_of(running, forged, before=LINE) == "203.0.113.9", "it is no proxy of ours"
    nearer = LINE.replace(b"203.0.113.9", b"127.0.0.9")
    assert await client_of(running, forged, before=nearer) == "198.51.100.1", "a proxy of ours behind another"


@pytest.mark.parametrize("header", [LINE, block("203.0.113.9", "192.0.2.1", extra=b"x" * 50)], ids=["1", "2"])
async def test_a_header_in_single_bytes_is_one_too(stage: Stage, header: bytes) -> None:
    running = await stage.gateway(await stage.worker(), listen=PROXIED)
    running.before = LINE
    client = await stage.client(running)
    await client.send(*[bytes((byte,)) for byte in header + post()[:20]], gap=0.001)
    await client.send(post()[20:])
    assert (await client.answer()).status == 200
    assert running.finished[-1].client == "203.0.113.9"


@pytest.mark.parametrize("name", BAD_HEADERS)
async def test_a_trusted_peer_without_a_good_header_is_refused(stage: Stage, name: str) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, listen=PROXIED)
    running.before = LINE
    client = await stage.client(running)
    await client.send(BAD_HEADERS[name] + post())
    assert (await client.closed())[:12] in (b"HTTP/1.1 400", b""), "a reset may overtake the answer"
    assert worker.requests == []


@pytest.mark.parametrize("header", [LINE, block("203.0.113.9", "192.0.2.1"), LOCAL], ids=["1", "2", "local"])
async def test_others_are_served_without_a_header_and_not_believed_with_one(stage: Stage, header: bytes) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker, listen={"trusted_proxies": ["10.0.0.0/8"], "proxy_protocol": True})
    assert await client_of(running) == "127.0.0.1"
    client = await stage.client(running)
    await client.send(header + post())
    assert (await client.head()).status == 400
    await client.closed()
    assert len(worker.requests) == 1


async def test_a_header_that_does_not_come_holds_nothing(stage: Stage) -> None:
    """Health checks of balancers connect and leave; others connect and say nothing, or half of it."""
    running = await stage.gateway(await stage.worker(), listen=PROXIED, timeouts={"client_read_seconds": 0.4})
    running.before = LINE
    for said in (b"", b"PROX", MARK + b"\x21\x11\x00\x0c\x01"):
        client = await stage.client(running)
        await client.send(said)
        assert await client.closed() == b""
        leaving = await Client.connect(running.port)
        await leaving.send(said)
        await leaving.close()
    trickling = await stage.client(running)
    for at in range(100):
        try:
            await trickling.send(LINE[at % 40 : at % 40 + 1])
        except (ConnectionError, RuntimeError):  # uvloop has a word of its own for it
            break
        await asyncio.sleep(0.02)
    assert await trickling.closed() == b""
    door = running.server.servers[0]
    await eventually(lambda: not door._tasks)
