"""The prompt, free of dialect: one string of bytes in template order.

A prompt's canonical bytes are what the engine's chat template would begin with: tools, system, turns. Each
part opens with a mark that no text can hold, since UTF-8 never uses the bytes FF and FE:

    FF kind role FE content

So different shapes never collide, parts need no length in front (a length in front would part two prompts
with a common beginning), and two prompts that begin alike have canonical bytes that begin alike. Lone
surrogates, which JSON can smuggle in, are kept by `surrogatepass`.
"""

from __future__ import annotations

import json

import msgspec
import xxhash

TURN, TOOLS, TEXT, MEDIA, CALL, NAME = b"\xffT", b"\xffF", b"\xffP", b"\xffM", b"\xffC", b"\xffN"
OPEN = b"\xfe"
IDS, BIG_IDS, NEXT = b"\xffI", b"\xffJ", b"\xffS"
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
    priority: int | None = None


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
    """JSON of a decoded value, in the order given, with every oddity that Python's own writer can say."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return json.dumps(value).encode("ascii", "replace")
    except (TypeError, ValueError, RecursionError):
        return b"unsayable"


def ids(out: list[bytes], tokens: list[int]) -> None:
    """Token ids as code points in UTF-8: no id equals another's first digits, and none can look like a mark.

    Ids beyond Unicode's range, which no vocabulary reaches, are written as decimal text under a mark of their own.
    """
    try:
        out += (IDS, OPEN, "".join(map(chr, tokens)).encode("utf-8", "surrogatepass"))
    except (OverflowError, ValueError):
        out += (BIG_IDS, OPEN, ",".join(map(str, tokens)).encode())
