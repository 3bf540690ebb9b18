"""Server-sent events as the API servers write them: `data: {...}` and a blank line, one event a chunk of the body."""

from typing import Any

from backends.http import Headers
from backends.wire import encode

EVENT_STREAM: Headers = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]
DONE = b"data: [DONE]\n\n"
HOLE = "\0hole\0"


def event(value: Any, name: str | None = None) -> bytes:
    """One event; Anthropic's form has a name, OpenAI's has none."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + encode(value) + b"\n\n"


class EventForm:
    """An event of which only one text changes from token to token: everything else is encoded once.

    The value holds `HOLE` where the text goes. With thousands of tokens a second this is most of the worker's work.
    """

    def __init__(self, value: Any, name: str | None = None) -> None:
        self._before, _, self._after = event(value, name).partition(encode(HOLE))

    def fill(self, text: str) -> bytes:
        return self._before + encode(text) + self._after
