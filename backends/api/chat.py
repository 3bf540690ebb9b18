"""OpenAI's chat completions, as vLLM answers them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from backends import sampling
from backends.answers import Stream, Whole
from backends.choices import Scored, begin
from backends.contract import Tokenizer, Usage
from backends.face import Call, Route
from backends.logprobs import chat_logprobs
from backends.openai import Body
from backends.prompts import conversation
from backends.sse import event
from backends.wire import ApiError, read

MOST_TOP_LOGPROBS = 20


class ChatBody(Body):
    messages: list[Any] = msgspec.field(default_factory=list)
    tools: list[Any] | None = None
    max_completion_tokens: int | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    logprobs: bool | None = False
    top_logprobs: int | None = None

    @property
    def limit(self) -> int | None:
        """The newer name goes first."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def wanted_logprobs(self) -> int | None:
        if self.top_logprobs is None:
            return 0 if self.logprobs else None
        sampling.check_whole("top_logprobs", self.top_logprobs, 0, MOST_TOP_LOGPROBS)
        if not self.logprobs:
            message = "When using `top_logprobs`, `logprobs` must be set to true."
            raise ApiError(400, message, param="top_logprobs")
        return self.top_logprobs


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
    jobs = body.jobs(model, prompt, body.limit, body.wanted_logprobs)
    stream = ChatStream(call, jobs, body.choices, with_usage=body.with_usage) if body.stream else None
    begin(call, jobs, stream or ChatWhole(call, jobs, body.choices), body.stops)


class ChatWhole(Whole):
    kind = "chatcmpl"
    object = "chat.completion"

    def said(self, text: str, scored: Sequence[Scored] | None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "tool_calls": []}
        return {"message": message, "logprobs": shown(scored, self._tokenizer)}


class ChatStream(Stream):
    """A choice's first event only names the role."""

    kind = "chatcmpl"
    object = "chat.completion.chunk"

    def prefilled(self, index: int, usage: Usage) -> None:
        role = {"delta": {"role": "assistant", "content": ""}, "logprobs": None}
        self._answer.send([event(self.chunk(index, role))])

    def said(self, text: str, scored: Sequence[Scored] | None) -> dict[str, Any]:
        return {"delta": {"content": text}, "logprobs": shown(scored, self._tokenizer)}


def shown(scored: Sequence[Scored] | None, tokenizer: Tokenizer) -> dict[str, Any] | None:
    return None if scored is None else chat_logprobs(scored, tokenizer)


ROUTES = (Route("POST", "/v1/chat/completions", handle, generates=True),)
