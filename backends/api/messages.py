"""Anthropic's messages, as vLLM answers them.

Anthropic counts what came from the cache apart: `input_tokens` are the prompt tokens that were computed, and only the
sum with `cache_read_input_tokens` is the whole prompt.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from backends.contract import Chat, End, Job, Usage
from backends.face import Call, Route
from backends.prompts import conversation
from backends.sse import EVENT_STREAM, HOLE, EventForm, event
from backends.wire import ApiError, read, send_json

STOP_REASONS = {"length": "max_tokens", "stop": "end_turn"}


class MessagesBody(msgspec.Struct, kw_only=True):
    messages: list[Any]
    model: str | None = None
    max_tokens: int | None = None
    system: Any = None
    tools: list[Any] | None = None
    stream: bool | None = False
    temperature: float | None = None

    def chat(self) -> Chat:
        if not self.messages:
            raise ApiError(400, "`messages` must hold at least one message.", param="messages")
        return conversation(self.messages, self.tools or (), self.system)


def handle(call: Call) -> None:
    body = read(call.body(), MessagesBody)
    if body.max_tokens is None or body.max_tokens < 1:
        raise ApiError(400, "`max_tokens` is required and must be at least 1.", param="max_tokens")
    model, prompt = call.model(body.model), call.engine.tokenizer.chat(body.chat())
    job = Job(model=model, prompt=prompt, max_tokens=body.max_tokens, temperature=body.temperature)
    sink = MessageStream(call, job) if body.stream else MessageWhole(call, job)
    call.start([job], [sink])
    sink.open()


def count(call: Call) -> None:
    body = read(call.body(), MessagesBody)
    call.model(body.model)
    send_json(call.answer, {"input_tokens": len(call.engine.tokenizer.chat(body.chat()))})


def usage_object(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
    }


def message(call: Call, job: Job, texts: Sequence[str], usage: Usage, reason: str | None) -> dict[str, Any]:
    return {
        "id": call.name("msg"),
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": text} for text in texts],
        "model": job.model,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": usage_object(usage),
    }


class MessageWhole:
    def __init__(self, call: Call, job: Job) -> None:
        self._call = call
        self._job = job
        self._texts: list[str] = []

    def open(self) -> None:
        """Nothing is sent before the end."""

    def prefilled(self, usage: Usage) -> None: ...

    def tokens(self, pieces: Sequence[str]) -> None:
        self._texts.extend(pieces)

    def finished(self, end: End) -> None:
        texts = ["".join(self._texts)]
        send_json(self._call.answer, message(self._call, self._job, texts, end.usage, STOP_REASONS[end.reason]))


class MessageStream:
    DELTA = EventForm(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": HOLE}},
        "content_block_delta",
    )

    def __init__(self, call: Call, job: Job) -> None:
        self._call = call
        self._job = job

    def open(self) -> None:
        self._call.answer.head(200, EVENT_STREAM)

    def prefilled(self, usage: Usage) -> None:
        block = {"index": 0, "content_block": {"type": "text", "text": ""}}
        self._send(
            ("message_start", {"message": message(self._call, self._job, (), usage, None)}),
            ("content_block_start", block),
        )

    def tokens(self, pieces: Sequence[str]) -> None:
        self._call.answer.send([self.DELTA.fill(piece) for piece in pieces])

    def finished(self, end: End) -> None:
        delta = {"stop_reason": STOP_REASONS[end.reason], "stop_sequence": None}
        self._send(
            ("content_block_stop", {"index": 0}),
            ("message_delta", {"delta": delta, "usage": usage_object(end.usage)}),
            ("message_stop", {}),
        )
        self._call.answer.end()

    def _send(self, *events: tuple[str, dict[str, Any]]) -> None:
        self._call.answer.send([event({"type": name, **fields}, name) for name, fields in events])


ROUTES = (
    Route("POST", "/v1/messages", handle, generates=True, error_form=ApiError.anthropic),
    Route("POST", "/v1/messages/count_tokens", count, error_form=ApiError.anthropic),
)
