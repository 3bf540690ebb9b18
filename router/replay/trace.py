"""Lines of a trace in any of three forms, told apart by the first's fields: block names, full text, an access log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

import msgspec

from router.replay.blocks import BlockLine, block_rows
from router.replay.logged import LogLine, logged_rows
from router.replay.rows import Row, TraceError
from router.replay.textual import TextLine, text_rows

Line = TypeVar("Line")
EXPECTED = "expected a JSON object a line with `hash_ids`, `input`, or the fields of the gateway's access log"


def read(
    lines: Iterable[bytes], *, shared_head: bool = False, exact: bool = False, limit: int | None = None
) -> list[Row]:
    """The rows in time, at most `limit`. Raises TraceError, which names the line."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    first = next(numbered, None)
    if first is None:
        raise TraceError(0, "the trace is empty")
    form = _form(*first)
    rest = chain((first,), numbered)
    if form is LogLine:
        rows = logged_rows(_decoded((pair for pair in rest if b'"dropped_lines"' not in pair[1]), LogLine))
    elif form is TextLine:
        rows = text_rows((line for _, line in _decoded(rest, TextLine)), exact=exact)
    else:
        rows = block_rows((line for _, line in _decoded(rest, BlockLine)), shared_head=shared_head)
    return rows[:limit]


def _form(number: int, line: bytes) -> type[Any]:
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise TraceError(number, f"not JSON ({wrong}); {EXPECTED}") from None
    for field, form in (
        ("hash_ids", BlockLine),
        ("input", TextLine),
        ("request_id", LogLine),
        ("dropped_lines", LogLine),
    ):
        if isinstance(fields, dict) and field in fields:
            return form
    raise TraceError(number, EXPECTED)


def _decoded(lines: Iterable[tuple[int, bytes]], form: type[Line]) -> Iterator[tuple[int, Line]]:
    decode = msgspec.json.Decoder(form).decode
    for number, line in lines:
        try:
            yield number, decode(line)
        except (
            msgspec.DecodeError,
            UnicodeDecodeError,
            RecursionError,
        ) as wrong:  # what does not fit is one of the former
            raise TraceError(number, str(wrong)) from None
