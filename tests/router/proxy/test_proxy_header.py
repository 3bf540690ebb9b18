"""PROXY headers of both versions, read from bytes."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.proxy_header import MARK, MOST_BLOCK, MOST_LINE, BadHeader, Origin, read_header


class Ended(Exception):
    pass


class Bytes:
    def __init__(self, data: bytes) -> None:
        self.left = data

    async def read(self, count: int) -> bytes:
        if len(self.left) < count:
            raise Ended
        taken, self.left = self.left[:count], self.left[count:]
        return taken


def read(data: bytes) -> tuple[Origin | None, bytes]:
    """What it says, and what is left."""
    source = Bytes(data)
    return asyncio.run(read_header(source.read)), source.left


def block(command: int, family: int, body: bytes) -> bytes:
    return MARK + bytes((command, family)) + len(body).to_bytes(2, "big") + body


FOUR = bytes((203, 0, 113, 9, 192, 0, 2, 1)) + b"\x9c\x40\x01\xbb"


def test_version_1_is_read_to_its_line_end_and_no_further() -> None:
    assert read(b"PROXY TCP4 203.0.113.9 192.0.2.1 40000 443\r\nrest") == (Origin("203.0.113.9", 40_000), b"rest")
    assert read(b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n") == (Origin("2001:db8::1", 1), b"")
    assert read(b"PROXY UNKNOWN\r\nrest") == (None, b"rest")


def test_version_2_is_read_to_its_length_and_no_further() -> None:
    assert read(block(0x21, 0x11, FOUR) + b"rest") == (Origin("203.0.113.9", 40_000), b"rest")
    assert read(block(0x21, 0x11, FOUR + b"\x04\x00\x01x") + b"rest") == (Origin("203.0.113.9", 40_000), b"rest")
    mapped = b"\0" * 10 + b"\xff\xff" + FOUR[:4] + b"\0" * 16 + FOUR[8:]
    assert read(block(0x21, 0x21, mapped)) == (Origin("203.0.113.9", 40_000), b"")


@pytest.mark.parametrize("family", [0x00, 0x11, 0x31, 0xFF])
def test_a_peers_own_connection_says_nothing_of_a_client(family: int) -> None:
    assert read(block(0x20, family, b"whatever") + b"rest") == (None, b"rest")


@pytest.mark.parametrize("family", [0x00, 0x12, 0x22, 0x31])
def test_no_address_of_ours_is_none(family: int) -> None:
    assert read(block(0x21, family, b"x" * 216)) == (None, b"")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n", MARK[:6] + b"GET / HTTP", block(0x11, 0x11, FOUR), block(0x22, 0x11, FOUR),
        block(0x21, 0x44, FOUR), block(0x21, 0x13, FOUR), block(0x21, 0x11, FOUR[:-1]), block(0x21, 0x21, FOUR),
        block(0x21, 0x11, b"x" * (MOST_BLOCK + 1)), b"PROXY TCP4 " + b"1" * MOST_LINE, b"PROXY TCP4 1 2 3 4\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 1 -2\r\n", b"PROXY TCP4 1.2.3.4 ::1 1 2\r\n", b"PROXY \r\n", b"PROXY TCP4\r\n",
        b"PROXY TCP4 1.2.3.4\r1.2.3.4 1 2\r\n", b"PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n", b"PROXY TCP4 \xff 1 1 2\r\n",
    ],
)  # fmt: skip
def test_what_does_not_hold_to_the_form_is_refused(data: bytes) -> None:
    with pytest.raises(BadHeader):
        read(data)


@given(st.binary(max_size=300), st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", MARK, MARK + b"\x21\x11\x00\x0c"]))
def test_any_bytes_are_read_or_refused(data: bytes, begin: bytes) -> None:
    try:
        origin, left = read(begin + data)
    except (BadHeader, Ended):
        return
    assert (begin + data).endswith(left)
    assert origin is None or 0 <= origin.port < 65_536
