"""Good bytes made bad: cut, doubled, spliced, and with the tokens in them that parsers stumble over."""

from collections.abc import Sequence
from random import Random

TOKENS = (
    b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b":", b";", b",", b"0", b"-1", b"+", b"f" * 20, b"\xff", b"\x7f",
    b"\r\n\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Host: b\r\n",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"Expect: 100-continue\r\n", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0",
    b"0\r\n\r\n", b"5\r\nhello\r\n", b"5;a=b\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"#", b"?",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1\r\n", b"\x16\x03\x01", b"data: x\n\n", b"a" * 5000,
)  # fmt: skip


def mutated(dice: Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds, changed in up to six places; now and then as it is."""
    data = bytearray(dice.choice(seeds))
    for _ in range(dice.choice((0, 1, 1, 1, 2, 2, 3, 6))):
        at = dice.randrange(len(data) + 1)
        end = min(len(data), at + dice.choice((1, 1, 2, 5, 30)))
        kind = dice.randrange(7)
        if kind == 0:
            data[at:end] = b""
        elif kind == 1:
            data[at:at] = dice.choice(TOKENS)
        elif kind == 2:
            data[at:end] = dice.choice(TOKENS)
        elif kind == 3:
            data[at:at] = data[at:end] * dice.choice((1, 2, 20))
        elif kind == 4 and at < len(data):
            data[at] = dice.randrange(256)
        elif kind == 5:
            data = data[:at]
        else:
            other = dice.choice(seeds)
            data = data[:at] + other[dice.randrange(len(other) + 1) :]
    return bytes(data)


def cut(dice: Random, data: bytes) -> list[bytes]:
    """In up to four pieces."""
    marks = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 0, 1, 3))))
    return [data[left:right] for left, right in zip([0, *marks], [*marks, len(data)], strict=True)]
