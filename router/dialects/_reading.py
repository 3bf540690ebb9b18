"""What the dialects share in reading: JSON that fails no request it need not, and the usage in an answer's tail."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from router.contracts import Usage
from router.dialects._shapes import ReportedUsage, read_usage
from router.errors import InvalidJson
from router.prompt import CALL, NAME, NEXT, media, stable, tagged, text

Body = TypeVar("Body")

CALLS: Final = ("tool_use", "tool_result", "function_call")  # compared, not hashed: a part's type may be anything
CACHE_CONTROL: Final = "cache_control"  # a mark that clients move on from turn to turn; no engine reads it as text
NO_PROMPT: Final = ("content", CACHE_CONTROL)
MOST_NESTED: Final = 4
NOT_JSON: Final = "The request body is not valid JSON."
NO_USAGE: Final = Usage(None, None, None)
EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r", b"\ndata:", b"\rdata:")


def decode(body: bytes, strict: Callable[[bytes], Body], shape: type[Body]) -> Body | None:
    """The body in its typed shape, or None when it is JSON of another shape. Raises InvalidJson when it is not JSON.

    msgspec reads what nearly every client sends. What it refuses and Python's own reader takes (lone surrogates, NaN,
    a byte order mark, odd types in fields) is converted leniently; the worker may know better than this gateway.
    """
    try:
        return strict(body)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError):
        value = loads(body)
    if not isinstance(value, dict):
        return None
    messages = value.pop("messages", None)
    if messages is not None:
        value["messages"] = [fields(each) for each in (messages if isinstance(messages, list) else [messages])]
    try:
        return msgspec.convert(fields(value), shape)
    except msgspec.ValidationError:
        return None


def fields(value: Any) -> dict[str, Any]:
    """What a shape may take its fields from: no field's name is beyond ASCII, and msgspec fails on lone surrogates."""
    if not isinstance(value, dict):
        return {"content": value}
    return {name: each for name, each in value.items() if name.isascii()}


def loads(body: bytes) -> Any:
    """Any JSON value, read by Python's own reader; None where that is nested too deeply. Raises InvalidJson."""
    try:
        return json.loads(body.decode("utf-8-sig", "surrogateescape"), parse_int=_integer)
    except RecursionError:
        return None
    except ValueError:
        raise InvalidJson(NOT_JSON) from None


def _integer(digits: str) -> int | str:
    """Python reads no number of thousands of digits; those digits tell it from others all the same."""
    try:
        return int(digits)
    except ValueError:
        return digits


def content(out: list[bytes], value: Any, depth: int = 0) -> None:
    """A turn's content: text, null, or a list of parts. A single text part gives the bytes of the same text."""
    if isinstance(value, str):
        text(out, value)
    elif isinstance(value, list):
        for at, part in enumerate(value):
            if at:
                out.append(NEXT)
            _part(out, part, depth)
    elif value is not None:
        tagged(out, NAME, stable(value))


def _part(out: list[bytes], part: Any, depth: int) -> None:
    if isinstance(part, str):
        text(out, part)
    elif isinstance(part, dict) and isinstance(part.get("text"), str) and _is_text(part):
        text(out, part["text"])
    elif isinstance(part, dict) and part.get("type") in CALLS and depth < MOST_NESTED:
        tagged(out, CALL, stable({name: value for name, value in part.items() if name not in NO_PROMPT}))
        content(out, part.get("content"), depth + 1)  # a tool's result may hold an image
    else:
        if isinstance(part, dict) and CACHE_CONTROL in part:
            part = {name: value for name, value in part.items() if name != CACHE_CONTROL}
        media(out, part)


def _is_text(part: dict[str, Any]) -> bool:
    return part.get("type") in (None, "text", "input_text", "output_text")


def reported(tail: bytes, before: int | None = None) -> tuple[ReportedUsage | None, int]:
    """The last usage that an answer's last bytes report, and where it stands (-1: there is none).

    `tail` may be JSON or a stream of events and may begin anywhere. Inside a JSON text every quote is escaped, so the
    name in its quotes is found only where it is a field; what follows it up to the event's end is read as the rest of
    an object.
    """
    at = len(tail) if before is None else before
    while (at := tail.rfind(b'"usage"', 0, at)) >= 0:
        rest = _up_to_event_end(tail, at)
        for closing in (b"", b"}"):  # Anthropic's message_start nests its usage one object deeper
            try:
                usage = read_usage(b"{" + rest.removesuffix(closing)).usage
            except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
                continue
            if usage is not None:
                return usage, at
            break
    return None, -1


def _up_to_event_end(tail: bytes, start: int) -> bytes:
    end = len(tail)
    for mark in EVENT_ENDS:
        found = tail.find(mark, start, end)
        if found >= 0:
            end = found
    return tail[start:end].rstrip()


def json_usage(tail: bytes) -> Usage:
    """Usage in OpenAI's form. The usual JSON answer ends as the object of its usage does; `reported` looks closer."""
    at = tail.rfind(b'"usage"')
    if at < 0:
        return NO_USAGE
    try:
        usage = read_usage(b"{" + tail[at:]).usage
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        usage = None
    if usage is None:
        usage, _ = reported(tail)
        if usage is None:
            return NO_USAGE
    details = usage.prompt_tokens_details or usage.input_tokens_details
    prompt = usage.input_tokens if usage.prompt_tokens is None else usage.prompt_tokens
    output = usage.output_tokens if usage.completion_tokens is None else usage.completion_tokens
    return Usage(prompt, output, details.cached_tokens if details else None)


def event_data(event: bytes) -> bytes:
    """The data of one server-sent event, its lines joined (WHATWG HTML, server-sent events)."""
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)


def error_body(value: object) -> bytes:
    """JSON of an error; what no encoding can say is replaced."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, ValueError):
        return json.dumps(value).encode("ascii", "replace")
