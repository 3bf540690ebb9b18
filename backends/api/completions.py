"""OpenAI's text completions, as vLLM answers them, with all four shapes of `prompt`."""

from collections.abc import Sequence
from typing import Any

from backends import sampling
from backends.answers import Stream, Together, Whole
from backends.choices import Scored, begin
from backends.face import Call, Route
from backends.logprobs import text_logprobs
from backends.openai import Body
from backends.prompts import token_lists
from backends.wire import read

MOST_LOGPROBS = 5


class CompletionBody(Body):
    prompt: Any = None
    logprobs: int | None = None

    @property
    def wanted_logprobs(self) -> int | None:
        return None if self.logprobs is None else sampling.check_whole("logprobs", self.logprobs, 0, MOST_LOGPROBS)


def handle(call: Call) -> None:
    body = read(call.body(), CompletionBody)
    model = call.model(body.model)
    prompts = token_lists(body.prompt, call.engine.tokenizer, "prompt")
    jobs = [job for prompt in prompts for job in body.jobs(model, prompt, body.max_tokens, body.wanted_logprobs)]
    stream = CompletionStream(call, jobs, body.choices, with_usage=body.with_usage) if body.stream else None
    begin(call, jobs, stream or CompletionWhole(call, jobs, body.choices), body.stops)


class Completion(Together):
    kind = "cmpl"
    object = "text_completion"

    def said(self, text: str, scored: Sequence[Scored] | None) -> dict[str, Any]:
        return {"text": text, "logprobs": None if scored is None else text_logprobs(scored, self._tokenizer)}


class CompletionWhole(Completion, Whole): ...


class CompletionStream(Completion, Stream): ...


ROUTES = (Route("POST", "/v1/completions", handle, generates=True),)
