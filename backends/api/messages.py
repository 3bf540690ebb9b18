"""Anthropic's messages, as vLLM answers them.

Anthropic counts what came from the cache apart: `input_tokens` are the prompt tokens that were computed, and only the
sum with `cache_read_input_tokens` is the whole prompt.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from backends import sampling
from backends.choices import Scored, begin
from backends.contract import Chat, End, Job, Usage
from backends.face import Call, Route
from backends.prompts import conversation
from backends.sse import EVENT_STREAM, HOLE, EventForm, event
from backends.wire import ApiError, internal_error, read, send_json

STOP_REASONS = {"length": "max_tokens", "stop": "end_turn"}
MOST_STOPS = 64


class MessagesBody(msgspec.Struct, kw_only=True):
    messages: list[Any]
    model: str | None = None
    max_tokens: int | None = None
    system: Any = None
    tools: list[Any] | None = None
    stream: bool | None = False
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None

    def chat(self) -> Chat:
        if not self.messages:
            raise ApiError(400, "`messages` must hold at least one message.", param="messages")
        return conversation(self.messages, self.tools or (), self.system)


def handle(call: Call) -> None:
    body = read(call.body(), MessagesBody)
    if body.max_tokens is None or body.max_tokens < 1:
        raise ApiError(400, "`max_tokens` is required and must be at least 1.", param="max_tokens")
    sampling.check_sampling(body.temperature, body.top_p)
    stops = sampling.stop_strings(body.stop_sequences, "stop_sequences", MOST_STOPS)
    model, prompt = call.model(body.model), call.engine.tokenizer.chat(body.chat())
    job = Job(model=model, prompt=prompt, max_tokens=body.max_tokens, temperature=body.temperature, top_p=body.top_p)
    begin(call, [job], MessageStream(call, job) if body.stream else MessageWhole(call, job), stops)


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


def ending(end: End, stop: str | None) -> dict[str, str | None]:
    """Why it ended, and the stop sequence where that was one."""
    return {"stop_reason": STOP_REASONS[end.reason] if stop is None else "stop_sequence", "stop_sequence": stop}


class Message:
    """A listener to the one sequence of a message; Anthropic's API knows no log probabilities."""

    def __init__(self, call: Call, job: Job) -> None:
        self._call = call
        self._job = job

    def open(self) -> None: ...

    def prefilled(self, index: int, usage: Usage) -> None: ...

    def _message(self, texts: Sequence[str], usage: Usage, end: dict[str, str | None]) -> dict[str, Any]:
        return {
            "id": self._call.name("msg"),
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": text} for text in texts],
            "model": self._job.model,
            **end,
            "usage": usage_object(usage),
        }


class MessageWhole(Message):
    def __init__(self, call: Call, job: Job) -> None:
        super().__init__(call, job)
        self._texts: list[str] = []

    def write(self, index: int, texts: Sequence[str], scored: Sequence[Sequence[Scored]] | None) -> None:
        self._texts.extend(texts)

    def close(self, index: int, end: End, stop: str | None) -> None:
        send_json(self._call.answer, self._message(["".join(self._texts)], end.usage, ending(end, stop)))

    def fail(self) -> None:
        error = internal_error()
        send_json(self._call.answer, error.anthropic(), error.status)


class MessageStream(Message):
    DELTA = EventForm(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": HOLE}},
        "content_block_delta",
    )

    def open(self) -> None:
        self._call.answer.head(200, EVENT_STREAM)

    def prefilled(self, index: int, usage: Usage) -> None:
        block = {"index": 0, "content_block": {"type": "text", "text": ""}}
        begun = self._message((), usage, {"stop_reason": None, "stop_sequence": None})
        self._send(("message_start", {"message": begun}), ("content_block_start", block))

    def write(self, index: int, texts: Sequence[str], scored: Sequence[Sequence[Scored]] | None) -> None:
        self._call.answer.send([self.DELTA.fill(text) for text in texts])

    def close(self, index: int, end: End, stop: str | None) -> None:
        self._send(
            ("content_block_stop", {"index": 0}),
            ("message_delta", {"delta": ending(end, stop), "usage": usage_object(end.usage)}),
            ("message_stop", {}),
        )
        self._call.answer.end()

    def fail(self) -> None:
        self._call.answer.cut()

    def _send(self, *events: tuple[str, dict[str, Any]]) -> None:
        self._call.answer.send([event({"type": name, **fields}, name) for name, fields in events])


ROUTES = (
    Route("POST", "/v1/messages", handle, generates=True, error_form=ApiError.anthropic),
    Route("POST", "/v1/messages/count_tokens", count, error_form=ApiError.anthropic),
)
