"""Anthropic's messages API, as vLLM, SGLang and llama.cpp offer it at `/v1/messages`."""

from __future__ import annotations

from typing import Any

import msgspec

from router.contracts import Usage
from router.dialects import _reading as reading
from router.errors import Refusal
from router.prompt import TOOLS, Prompt, stable, tagged, turn

ERROR_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    405: "invalid_request_error", 408: "timeout_error", 413: "request_too_large", 429: "rate_limit_error",
    503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip


class Message(msgspec.Struct, gc=False):
    role: Any = ""
    content: Any = None


class Messages(msgspec.Struct, gc=False):
    messages: list[Message] = []
    model: Any = None
    stream: Any = False
    system: Any = None
    tools: Any = None
    cache_salt: Any = None
    priority: Any = None


_messages = msgspec.json.Decoder(Messages).decode


class Anthropic:
    name = "anthropic"
    native = False
    paths = ("/v1/messages",)

    def read(self, path: str, body: bytes) -> Prompt:
        asked = reading.decode(body, _messages, Messages)
        if asked is None:
            return Prompt(b"")
        return Prompt(
            _text(asked),
            asked.model if isinstance(asked.model, str) else None,
            asked.stream is True,
            asked.cache_salt if isinstance(asked.cache_salt, str) else None,
            None,
            asked.model is None or isinstance(asked.model, str),
            asked.priority if type(asked.priority) is int else None,
        )

    def has_token(self, event: bytes) -> bool:
        return b"content_block_delta" in reading.event_data(event)[:256]

    def usage(self, tail: bytes) -> Usage:
        """A stream tells the input at its start and the output at its end. `input_tokens` leaves out what was read from
        the cache, so the prompt is the sum of both."""
        last, at = reading.reported(tail)
        first, _ = reading.reported(tail, at) if at > 0 else (None, -1)
        both = [usage for usage in (first, last) if usage is not None]
        given = next((usage for usage in both if usage.input_tokens is not None), None)
        output = last.output_tokens if last is not None else None
        if given is None or given.input_tokens is None:
            return Usage(None, output, None)
        cached = given.cache_read_input_tokens
        return Usage(given.input_tokens + (cached or 0), output, cached)

    def refusal(self, refusal: Refusal) -> tuple[bytes, bytes]:
        kind = ERROR_TYPES.get(refusal.status, "api_error")
        body = {"type": "error", "error": {"type": kind, "message": refusal.message}}
        return b"application/json", reading.error_body(body)


def _text(asked: Messages) -> bytes:
    out: list[bytes] = []
    if asked.tools:
        tagged(out, TOOLS, stable(asked.tools))
    if asked.system is not None:
        turn(out, "system")
        reading.content(out, asked.system)
    for message in asked.messages:
        turn(out, message.role if isinstance(message.role, str) else "")
        reading.content(out, message.content)
    return b"".join(out)


def build() -> Anthropic:
    return Anthropic()
