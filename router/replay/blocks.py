"""Block traces (the Mooncake form): a prompt is a list of names of 512-token blocks, each naming the whole prefix that
ends in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Annotated

import msgspec
from xxhash import xxh3_64_intdigest

from router.replay.item import BLOCK, Item
from router.replay.rows import Row, in_time
from router.replay.words import BlockWords

MOST = 100_000_000  # tokens of one prompt or answer: more is a mistake in the trace
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class BlockLine(msgspec.Struct):
    """One line. `timestamp` in ms; `head_tokens`: the tools and system part, which a client's sessions really share."""

    timestamp: float
    input_length: Annotated[int, msgspec.Meta(ge=1, le=MOST)]
    output_length: Count
    hash_ids: list[int | str]
    session: str | None = None
    head_tokens: Count = 0


class Names:
    """Blocks as small numbers, in each copy of a trace its own; those named by text are shared by all copies."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self._known: dict[int | str, dict[int | str, int]] = {}

    def of(self, ids: Iterable[int | str], copy: int) -> list[int]:
        own = self._known.setdefault(copy, {})
        common = self._known.setdefault("", {})
        return [self._number(own if isinstance(each, int) else common, each, copy) for each in ids]

    def _number(self, known: dict[int | str, int], each: int | str, copy: int) -> int:
        number = known.get(each)
        if number is None:
            number = known[each] = len(self.labels)
            self.labels.append(f"{each}/{copy}" if isinstance(each, int) else each)
        return number


def block_rows(lines: Iterable[BlockLine], *, shared_head: bool = False) -> list[Row]:
    """`shared_head`: the public agentic data names blocks in each session only; this gives the head that sessions of
    one client have in common (`head_tokens`) common names, in two client versions."""
    names = Names()
    rows = []
    for at, line in enumerate(lines):
        ids = _complete(line, at)
        if shared_head and line.session is not None:
            ids = _with_shared_head(ids, line.head_tokens, line.session)
        rows.append(Row(line.timestamp / 1000.0, line.session, partial(_item, line, ids, names)))
    return in_time(rows)


def _item(line: BlockLine, ids: list[int | str], names: Names, copy: int) -> Item:
    numbers = names.of(ids, copy)
    words = BlockWords(numbers, names.labels, line.input_length)
    ends = range(BLOCK, BLOCK * (len(numbers) + 1), BLOCK)  # a last block that is not full takes a whole one's place
    return Item(numbers, ends, line.input_length, line.output_length, words)


def _complete(line: BlockLine, at: int) -> list[int | str]:
    """As many blocks as the length has; what the line does not name nobody else has."""
    needed = (line.input_length + BLOCK - 1) // BLOCK
    return line.hash_ids[:needed] + [f"row {at} block {block}" for block in range(len(line.hash_ids), needed)]


def _with_shared_head(ids: list[int | str], head_tokens: int, session: str) -> list[int | str]:
    common = min(head_tokens // BLOCK, len(ids) - 1)
    number = re.search(r"(\d+)$", session)
    version = (int(number[1]) if number else xxh3_64_intdigest(session.encode())) % 2
    return [f"head{version}-{block}" for block in range(common)] + ids[common:]
