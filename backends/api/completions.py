"""OpenAI's text completions, as vLLM answers them, with all four shapes of `prompt`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from backends.contract import End, FinishReason, Job, Usage
from backends.face import Call, Route
from backends.openai import Body, StreamOptions, usage_object
from backends.prompts import token_lists
from backends.sse import DONE, EVENT_STREAM, HOLE, EventForm, event
from backends.wire import read, send_json


class CompletionBody(Body):
    prompt: Any = None


def handle(call: Call) -> None:
    body = read(call.body(), CompletionBody)
    model = call.model(body.model)
    jobs = [
        body.job(model, prompt, body.max_tokens) for prompt in token_lists(body.prompt, call.engine.tokenizer, "prompt")
    ]
    together = CompletionStream(call, jobs, body.options()) if body.stream else CompletionWhole(call, jobs)
    call.start(jobs, [Choice(index, together) for index in range(len(jobs))])
    together.open()


class Together(ABC):
    """The answer that all choices of one request share: it ends with the last of them."""

    def __init__(self, call: Call, jobs: Sequence[Job]) -> None:
        self._answer = call.answer
        self._missing = len(jobs)
        self._usages: list[Usage] = []
        self._base = {
            "id": call.name("cmpl"),
            "object": "text_completion",
            "created": call.created,
            "model": jobs[0].model,
        }

    def open(self) -> None:  # noqa: B027 - most need nothing here
        """Called once the jobs run."""

    @abstractmethod
    def write(self, index: int, pieces: Sequence[str]) -> None: ...

    @abstractmethod
    def close(self, index: int, end: End) -> None: ...

    def _is_last(self, end: End) -> bool:
        self._usages.append(end.usage)
        return len(self._usages) == self._missing

    def _usage(self) -> dict[str, Any]:
        sums = zip(
            *((one.prompt_tokens, one.completion_tokens, one.cached_tokens) for one in self._usages), strict=True
        )
        return usage_object(Usage(*map(sum, sums)))


class CompletionWhole(Together):
    def __init__(self, call: Call, jobs: Sequence[Job]) -> None:
        super().__init__(call, jobs)
        self._texts: list[list[str]] = [[] for _ in jobs]
        self._reasons: list[FinishReason] = ["stop" for _ in jobs]

    def write(self, index: int, pieces: Sequence[str]) -> None:
        self._texts[index].extend(pieces)

    def close(self, index: int, end: End) -> None:
        self._reasons[index] = end.reason
        if self._is_last(end):
            choices = [
                {"index": at, "text": "".join(texts), "logprobs": None, "finish_reason": reason, "stop_reason": None}
                for at, (texts, reason) in enumerate(zip(self._texts, self._reasons, strict=True))
            ]
            send_json(self._answer, {**self._base, "choices": choices, "usage": self._usage()})


class CompletionStream(Together):
    def __init__(self, call: Call, jobs: Sequence[Job], options: StreamOptions) -> None:
        super().__init__(call, jobs)
        self._options = options
        self._forms = [EventForm(self._chunk(index, HOLE)) for index in range(len(jobs))]

    def open(self) -> None:
        self._answer.head(200, EVENT_STREAM)

    def write(self, index: int, pieces: Sequence[str]) -> None:
        form = self._forms[index]
        self._answer.send([form.fill(piece) for piece in pieces])

    def close(self, index: int, end: End) -> None:
        self._answer.send([event(self._chunk(index, "", end.reason))])
        if self._is_last(end):
            usage = {**self._base, "choices": [], "usage": self._usage()}
            self._answer.send([*([event(usage)] if self._options.include_usage else []), DONE])
            self._answer.end()

    def _chunk(self, index: int, text: str, reason: str | None = None) -> dict[str, Any]:
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        return {**self._base, "choices": [choice]}


class Choice:
    """One sequence's sink: says which choice it is and passes on."""

    def __init__(self, index: int, together: Together) -> None:
        self._index = index
        self._together = together

    def prefilled(self, usage: Usage) -> None: ...

    def tokens(self, pieces: Sequence[str]) -> None:
        self._together.write(self._index, pieces)

    def finished(self, end: End) -> None:
        self._together.close(self._index, end)


ROUTES = (Route("POST", "/v1/completions", handle, generates=True),)
