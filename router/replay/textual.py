"""Traces with full text: the text itself is hashed, and the workers count tokens of their own.

Cache entries are blocks of 16 tokens, an engine's usual size, and only full ones: prompts may be short. Further copies
of the trace get a mark where a prompt parts from all other sessions', so that what sessions share stays shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated

import msgspec
from xxhash import xxh3_64_intdigest

from router.prompt import encoded
from router.replay.blocks import MOST
from router.replay.item import Item
from router.replay.rows import Row, in_time
from router.replay.tokens import token_ends
from router.replay.words import TextWords

TEXT_BLOCK = 16  # tokens


class TextLine(msgspec.Struct):
    """One line. `timestamp` in ms; `input_length`, `output_length`: true tokens, where they are known."""

    timestamp: float
    input: str
    output: str = ""
    session: str | None = None
    input_length: Annotated[int, msgspec.Meta(ge=1, le=MOST)] | None = None
    output_length: Annotated[int, msgspec.Meta(ge=0, le=MOST)] | None = None


def text_rows(lines: Iterable[TextLine], *, exact: bool = False) -> list[Row]:
    """`exact`: the router is told true tokens instead of estimating them."""
    held = list(lines)
    texts = [encoded(line.input) for line in held]
    partings = _partings(texts, [line.session for line in held])
    rows = []
    for line, text, parting in zip(held, texts, partings, strict=True):
        make = partial(_item, line, text, parting, exact)
        rows.append(Row(line.timestamp / 1000.0, line.session, make))
    return in_time(rows)


def _item(line: TextLine, text: bytes, parting: int, exact: bool, copy: int) -> Item:
    if copy:
        text = b"%s[copy %d]%s" % (text[:parting], copy, text[parting:])
    ends = token_ends(text)
    counted = len(ends)
    ratio = line.input_length / counted if line.input_length is not None and counted else 1.0
    names = []
    value, start = 0, 0
    for at in range(TEXT_BLOCK - 1, counted, TEXT_BLOCK):
        value = xxh3_64_intdigest(text[start : ends[at]], value)
        names.append(value)
        start = ends[at]
    block_ends = [round((at + 1) * TEXT_BLOCK * ratio) for at in range(len(names))]
    output = line.output_length if line.output_length is not None else len(token_ends(encoded(line.output)))
    words = TextWords(text, ends if exact else None, ratio)
    return Item(names, block_ends, max(1, line.input_length or counted), output, words)


def _partings(texts: Sequence[bytes], sessions: Sequence[str | None]) -> list[int]:
    """Of each text, the bytes that it has in common with some text of another session. In sorted order that is one of
    the two nearest of other sessions."""
    order = sorted(range(len(texts)), key=lambda at: texts[at])
    found = [0] * len(texts)
    for way in (order, order[::-1]):
        before: int | None = None  # the nearest of another session than the latest
        latest: int | None = None
        for at in way:
            if latest is not None and sessions[latest] != sessions[at]:
                before = latest
            if before is not None:
                found[at] = max(found[at], _common(texts[at], texts[before]))
            latest = at
    return found


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
