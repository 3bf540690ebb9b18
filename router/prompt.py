"""The prompt, free of dialect: one string of bytes in template order.

A prompt's canonical bytes are what the engine's chat template would begin with: tools, system, turns. Each
part opens with a mark that no text can hold, since UTF-8 never uses the bytes FF and FE:

    FF kind role FE content

So different shapes never collide, parts need no length in front (a length in front would part two prompts
with a common beginning), and two prompts that begin alike have canonical bytes that begin alike. Lone
surrogates, which JSON can smuggle in, are kept by `surrogatepass`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from sys import byteorder

import msgspec
import xxhash

TURN, TOOLS, TEXT, MEDIA, CALL, NAME = b"\xffT", b"\xffF", b"\xffP", b"\xffM", b"\xffC", b"\xffN"
OPEN = b"\xfe"
IDS = b"\xffI\xfe\xfe"  # four bytes, so that a rung never cuts an id in two
BYTES_A_TOKEN = 4.0  # characters of English text in a token, the field's rule of thumb; only ratios matter


class Prompt(msgspec.Struct, frozen=True):
    """What a dialect reads from a request. `text` is empty when there is nothing to hash.

    `ignored` bytes are never in here: media are digests of 16 characters, not megabytes.
    """

    text: bytes
    model: str | None = None
    stream: bool = False
    cache_salt: str | None = None
    cache_key: str | None = None
    model_is_text: bool = True


NOTHING = Prompt(b"")


def encoded(text: str) -> bytes:
    """UTF-8 that never fails: lone surrogates are passed as they are."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def opened(role: str) -> bytes:
    """The opening of a turn."""
    return TURN + encoded(role) + OPEN


def turn(out: list[bytes], role: str) -> None:
    """Open a turn; its content follows."""
    out.append(opened(role))


def text(out: list[bytes], content: str) -> None:
    """Text within a turn. A string and one text part of the same text give the same bytes."""
    out.append(encoded(content))


def tagged(out: list[bytes], kind: bytes, content: bytes) -> None:
    """A part that is not plain text: a tool call, a name, a list of tools."""
    out += (kind, OPEN, content, OPEN)


def media(out: list[bytes], content: object) -> None:
    """An image, a sound or a file: its digest stands for it."""
    raw = content if isinstance(content, bytes) else encoded(content) if isinstance(content, str) else stable(content)
    tagged(out, MEDIA, xxhash.xxh3_128_hexdigest(raw)[:16].encode())


def stable(value: object) -> bytes:
    """JSON of a decoded value, in the order given; falls back to `repr` for what JSON cannot say."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError):
        return encoded(repr(value))


def ids(out: list[bytes], tokens: Iterable[int]) -> None:
    """Token ids, four little-endian bytes each, so that one id cannot match another by its first digits.

    Ids that do not fit in 31 bits are written as decimal text: their bytes could look like a mark.
    """
    numbers = list(tokens)
    out.append(IDS)
    try:
        packed = array("i", numbers)
        if numbers and min(numbers) < 0:
            raise OverflowError
    except (OverflowError, TypeError):
        out.append(encoded(",".join(map(str, numbers))))
        return
    if byteorder == "big":
        packed.byteswap()
    out.append(packed.tobytes())
