"""What the dialects share in reading: JSON that never fails a request it need not, and the usage in an answer's tail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from router.contracts import Usage
from router.errors import InvalidJson
from router.prompt import CALL, NAME, media, stable, tagged, text

Body = TypeVar("Body")

NOT_JSON = "The request body is not valid JSON."
COUNTS = re.compile(
    rb'"(prompt_tokens|input_tokens|completion_tokens|output_tokens|cached_tokens|cache_read_input_tokens)"\s*:\s*(\d{1,12})'
)
MEANING = {
    b"prompt_tokens": "prompt", b"input_tokens": "prompt", b"completion_tokens": "output", b"output_tokens": "output",
    b"cached_tokens": "cached", b"cache_read_input_tokens": "cached",
}  # fmt: skip


def decode(body: bytes, strict: Callable[[bytes], Body], shape: type[Body]) -> Body | None:
    """The body in its typed shape, or None when it is JSON of another shape. Raises InvalidJson when it is not JSON.

    msgspec reads what nearly every client sends. What it refuses and Python's own reader takes (lone surrogates, NaN,
    a byte order mark, odd types in fields) is converted leniently; the worker may know better than this gateway.
    """
    try:
        return strict(body)
    except (msgspec.ValidationError, msgspec.DecodeError):
        value = loads(body)
    if not isinstance(value, dict):
        return None
    try:
        return msgspec.convert(value, shape, strict=False)
    except (msgspec.ValidationError, ValueError):
        return None


def loads(body: bytes) -> Any:
    """Any JSON value, read by Python's own reader; raises InvalidJson."""
    try:
        return json.loads(body.decode("utf-8-sig", "surrogateescape"))
    except (ValueError, RecursionError):
        raise InvalidJson(NOT_JSON) from None


def content(out: list[bytes], value: Any) -> None:
    """A turn's content: text, null, or a list of parts. A single text part gives the bytes of the same text."""
    if isinstance(value, str):
        text(out, value)
    elif isinstance(value, list):
        for part in value:
            _part(out, part)
    elif value is not None:
        tagged(out, NAME, stable(value))


def _part(out: list[bytes], part: Any) -> None:
    if isinstance(part, str):
        text(out, part)
    elif isinstance(part, dict) and isinstance(part.get("text"), str) and _is_text(part):
        text(out, part["text"])
    elif isinstance(part, dict) and part.get("type") in ("tool_use", "tool_result", "function_call"):
        tagged(out, CALL, stable(part))
    else:
        media(out, stable(part))


def _is_text(part: dict[str, Any]) -> bool:
    return part.get("type") in (None, "text", "input_text", "output_text")


def json_usage(tail: bytes, *, whole: bool = False) -> Usage:
    """Usage from the last bytes of an answer, JSON or a stream of events.

    The last `usage` that holds numbers counts; with `whole` the last number of each kind, wherever it stands. Inside a
    JSON text every quote is escaped, so these names are found only where they are fields.
    """
    at = tail.rfind(b'"usage"')
    counts = COUNTS.findall(tail, at) if at >= 0 and not whole else []
    while not counts and at > 0:
        at = 0 if whole else tail.rfind(b'"usage"', 0, at)
        counts = COUNTS.findall(tail, max(at, 0))
    found = {MEANING[name]: int(number) for name, number in counts}
    return Usage(found.get("prompt"), found.get("output"), found.get("cached"))


def event_data(event: bytes) -> bytes:
    """The data of one server-sent event, its lines joined (WHATWG HTML, server-sent events)."""
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)
