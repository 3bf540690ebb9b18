"""OpenAI's chat completions, as vLLM answers them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from backends.contract import End, Job, Usage
from backends.face import Call, Route
from backends.openai import Body, StreamOptions, usage_object
from backends.prompts import conversation
from backends.sse import DONE, EVENT_STREAM, HOLE, EventForm, event
from backends.wire import ApiError, read, send_json


class ChatBody(Body):
    messages: list[Any] = msgspec.field(default_factory=list)
    tools: list[Any] | None = None
    max_completion_tokens: int | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False


def handle(call: Call) -> None:
    body = read(call.body(), ChatBody)
    if not body.messages:
        raise ApiError(400, "`messages` must hold at least one message.", param="messages")
    if body.add_generation_prompt and body.continue_final_message:
        message = "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
        raise ApiError(400, message, param="continue_final_message")
    chat = conversation(body.messages, body.tools or ())
    model = call.model(body.model)
    prompt = call.engine.tokenizer.chat(
        chat, open_answer=body.add_generation_prompt, open_turn=body.continue_final_message
    )
    job = body.job(model, prompt, body.max_completion_tokens or body.max_tokens)
    sink = ChatStream(call, job, body.options()) if body.stream else ChatWhole(call, job)
    call.start([job], [sink])
    sink.open()


class ChatWhole:
    """Collects the answer and sends it at once."""

    def __init__(self, call: Call, job: Job) -> None:
        self._call = call
        self._model = job.model
        self._texts: list[str] = []

    def open(self) -> None:
        """Nothing is sent before the end."""

    def prefilled(self, usage: Usage) -> None: ...

    def tokens(self, pieces: Sequence[str]) -> None:
        self._texts.extend(pieces)

    def finished(self, end: End) -> None:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self._texts),
            "refusal": None,
            "tool_calls": [],
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": end.reason, "stop_reason": None}
        value = {
            "id": self._call.name("chatcmpl"),
            "object": "chat.completion",
            "created": self._call.created,
            "model": self._model,
            "choices": [choice],
            "usage": usage_object(end.usage),
        }
        send_json(self._call.answer, value)


class ChatStream:
    """One event a token, after a first one that only names the role and before the one that only says why it ended."""

    def __init__(self, call: Call, job: Job, options: StreamOptions) -> None:
        self._answer = call.answer
        self._options = options
        self._base = {
            "id": call.name("chatcmpl"),
            "object": "chat.completion.chunk",
            "created": call.created,
            "model": job.model,
        }
        self._form = EventForm(self._chunk({"content": HOLE}))

    def open(self) -> None:
        """The status goes out before the first token, as vLLM's does: whoever waits sees that the request was taken."""
        self._answer.head(200, EVENT_STREAM)

    def prefilled(self, usage: Usage) -> None:
        self._answer.send([event(self._chunk({"role": "assistant", "content": ""}))])

    def tokens(self, pieces: Sequence[str]) -> None:
        self._answer.send([self._form.fill(piece) for piece in pieces])

    def finished(self, end: End) -> None:
        last = [event(self._chunk({"content": ""}, end.reason))]
        if self._options.include_usage:
            last.append(event({**self._base, "choices": [], "usage": usage_object(end.usage)}))
        self._answer.send([*last, DONE])
        self._answer.end()

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {
            **self._base,
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}],
        }


ROUTES = (Route("POST", "/v1/chat/completions", handle, generates=True),)
