"""One top-level value of a JSON object, replaced or put in; every other byte stays as it came.

Nothing is decoded and written anew: big integers, `1.0`, escapes, white space and duplicate names are the client's. A
name is looked for as an engine's reader would find it: every duplicate of it, also one spelled with escapes, and none
that stands deeper or inside a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

MOST_MEMBERS = 10_000  # that are read one by one: millions in one body would hold up everybody for many seconds
MARK = b"\xef\xbb\xbf"
SPACE = re.compile(r"[ \t\n\r]*")
SPACE_BYTES = re.compile(rb"[ \t\n\r]*")
COLON = re.compile(rb"[ \t\n\r]*:[ \t\n\r]*")
ESCAPED = re.compile(rb"\\u00[567]")  # letters and `_`: only a name that hides itself needs these
_scan = json.JSONDecoder(strict=False).scan_once  # type: ignore[attr-defined]
_text = json.decoder.scanstring  # type: ignore[attr-defined]

Span = tuple[int, int]


def with_value(
    body: bytes, name: str, value: Callable[[bytes | None], bytes], *, checked: bool = True, insert: bool = True
) -> bytes:
    """The body with this member set. `value` is given the JSON it had (of duplicates the last, which is the one that
    readers heed), or None, and gives the new.

    checked: the body is known to be JSON; `insert`: it is put in where it was not. What is no object stays as it is.
    Raises ValueError where no exact reading is to be had.
    """
    start = _opening(body)
    if start < 0:
        json.loads(body.decode("utf-8-sig", "surrogateescape"))  # a laxer reader may see an object in what is no JSON
        return body
    spans = _spans(body, name, start, checked=checked)
    if spans:
        new = value(body[slice(*spans[-1])])
        return b"".join(_pieces(body, spans, new))
    if not insert:
        return body
    rest = SPACE_BYTES.match(body, start)
    comma = b"" if rest and body[rest.end() : rest.end() + 1] == b"}" else b","
    put_in = b'"%s":%s%s' % (name.encode(), value(None), comma)
    return b"".join((body[:start], put_in, memoryview(body)[start:]))


def _opening(body: bytes) -> int:
    """Where the object's first member may stand; -1 where there is no object."""
    begun = SPACE_BYTES.match(body, len(MARK) if body.startswith(MARK) else 0)
    at = begun.end() if begun else 0
    return at + 1 if body[at : at + 1] == b"{" else -1


def _pieces(body: bytes, spans: list[Span], new: bytes) -> Iterator[bytes]:
    at = 0
    for start, end in spans:
        yield body[at:start]
        yield new
        at = end
    yield body[at:]


def _spans(body: bytes, name: str, start: int, *, checked: bool) -> list[Span]:
    """Where the values of this member stand, in order.

    A typed look tells whether it is there at all. Quotes inside a text are escaped, so its name in quotes is found only
    where it is a whole string: if it is there once, that is the member. The rest is for the exact reader.
    """
    sought = _sought(name)
    if not checked:
        return _exact(body, name, start)
    try:
        found = sought.look(body)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return _exact(body, name, start)
    if found.value is msgspec.UNSET:
        return []
    at = body.find(sought.quoted)
    once = at >= 0 and body.find(sought.quoted, at + 1) < 0
    colon = COLON.match(body, at + len(sought.quoted)) if once else None
    if colon is None or (b"\\" in body and ESCAPED.search(body)):
        return _exact(body, name, start)
    return [(colon.end(), colon.end() + len(bytes(found.value)))]


class _Sought(NamedTuple):
    quoted: bytes
    look: Callable[[bytes], Any]


@lru_cache(16)
def _sought(name: str) -> _Sought:
    field = ("value", msgspec.Raw | msgspec.UnsetType, msgspec.field(default=msgspec.UNSET, name=name))
    shape = msgspec.defstruct("Sought", [field], gc=False)
    return _Sought(f'"{name}"'.encode(), msgspec.json.Decoder(shape).decode)


def _exact(body: bytes, name: str, start: int) -> list[Span]:
    """Member by member, as Python's own reader goes; in Latin-1 a character is a byte."""
    text = body.decode("latin-1")
    spans: list[Span] = []
    try:
        at = _space(text, start)
        if text[at] == "}":
            return _at_end(text, at + 1, spans)
        for _ in range(MOST_MEMBERS):
            if text[at] != '"':
                raise ValueError("no name")
            found, at = _text(text, at + 1, False)
            at = _space(text, at)
            if text[at] != ":":
                raise ValueError("no colon")
            begun = _space(text, at + 1)
            _, at = _scan(text, begun)
            if found == name:
                spans.append((begun, at))
            at = _space(text, at)
            if text[at] == "}":
                return _at_end(text, at + 1, spans)
            if text[at] != ",":
                raise ValueError("no comma")
            at = _space(text, at + 1)
        raise ValueError("too many members")
    except (IndexError, StopIteration, RecursionError):
        raise ValueError("not readable") from None


def _space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def _at_end(text: str, at: int, spans: list[Span]) -> list[Span]:
    if _space(text, at) != len(text):
        raise ValueError("more than one value")
    return spans
