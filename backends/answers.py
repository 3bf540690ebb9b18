"""OpenAI's generated answers, whole or as a stream, of one choice or of several: what chat and text completions share.

The choices of one prompt are neighbours: with `n` choices a prompt, choice i answers prompt i // n.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from backends.choices import Scored
from backends.contract import End, FinishReason, Job, Usage
from backends.face import Call
from backends.openai import usage_object
from backends.sse import DONE, EVENT_STREAM, HOLE, EventForm, event
from backends.wire import internal_error, send_json


class Together(ABC):
    """A listener to all choices, whose answer ends with the last of them."""

    kind: str
    """How the answer's id begins."""
    object: str

    def __init__(self, call: Call, jobs: Sequence[Job], n: int) -> None:
        self._answer = call.answer
        self._tokenizer = call.engine.tokenizer
        self._jobs = jobs
        self._n = n
        self._ends: dict[int, End] = {}
        self._base = {
            "id": call.name(self.kind),
            "object": self.object,
            "created": call.created,
            "model": jobs[0].model,
        }

    def open(self) -> None: ...  # noqa: B027 - a whole answer says nothing before its end

    def prefilled(self, index: int, usage: Usage) -> None: ...  # noqa: B027 - most say nothing of it

    @abstractmethod
    def write(self, index: int, texts: Sequence[str], scored: Sequence[Sequence[Scored]] | None) -> None: ...

    @abstractmethod
    def close(self, index: int, end: End, stop: str | None) -> None: ...

    @abstractmethod
    def fail(self) -> None: ...

    @abstractmethod
    def said(self, text: str, scored: Sequence[Scored] | None) -> dict[str, Any]:
        """A text of a choice and its log probabilities, as the answer's form shows them."""

    def _is_last(self, index: int, end: End) -> bool:
        self._ends[index] = end
        return len(self._ends) == len(self._jobs)

    def _usage(self) -> dict[str, Any]:
        """A prompt counts once for its choices, and as cached in it counts what none of them had to compute."""
        usages = [self._ends[index].usage for index in range(len(self._jobs))]
        groups = [usages[first : first + self._n] for first in range(0, len(usages), self._n)]
        prompts = [min(group, key=lambda one: one.cached_tokens) for group in groups]
        return usage_object(
            Usage(
                sum(one.prompt_tokens for one in prompts),
                sum(one.completion_tokens for one in usages),
                sum(one.cached_tokens for one in prompts),
            )
        )


class Whole(Together):
    """Collects the answer and sends it at once."""

    def __init__(self, call: Call, jobs: Sequence[Job], n: int) -> None:
        super().__init__(call, jobs, n)
        self._texts: list[list[str]] = [[] for _ in jobs]
        self._scored: list[list[Scored]] = [[] for _ in jobs]
        self._stops: list[str | None] = [None for _ in jobs]

    def write(self, index: int, texts: Sequence[str], scored: Sequence[Sequence[Scored]] | None) -> None:
        self._texts[index].extend(texts)
        for some in scored or ():
            self._scored[index].extend(some)

    def close(self, index: int, end: End, stop: str | None) -> None:
        self._stops[index] = stop
        if self._is_last(index, end):
            choices = [self._choice(at) for at in range(len(self._jobs))]
            send_json(self._answer, {**self._base, "choices": choices, "usage": self._usage()})

    def fail(self) -> None:
        error = internal_error()
        send_json(self._answer, error.openai(), error.status)

    def _choice(self, index: int) -> dict[str, Any]:
        scored = self._scored[index] if self._jobs[index].logprobs is not None else None
        said = self.said("".join(self._texts[index]), scored)
        return {"index": index, **said, "finish_reason": self._ends[index].reason, "stop_reason": self._stops[index]}


class Stream(Together):
    """An event for each text; the last one of a choice only says why it ended."""

    def __init__(self, call: Call, jobs: Sequence[Job], n: int, *, with_usage: bool) -> None:
        super().__init__(call, jobs, n)
        self._with_usage = with_usage
        self._forms = [EventForm(self.chunk(index, self.said(HOLE, None))) for index in range(len(jobs))]

    def open(self) -> None:
        """The status goes out before the first token, as vLLM's does: whoever waits sees that the request was taken."""
        self._answer.head(200, EVENT_STREAM)

    def write(self, index: int, texts: Sequence[str], scored: Sequence[Sequence[Scored]] | None) -> None:
        if scored is None:
            form = self._forms[index]
            self._answer.send([form.fill(text) for text in texts])
        else:
            pairs = zip(texts, scored, strict=True)
            self._answer.send([event(self.chunk(index, self.said(text, some))) for text, some in pairs])

    def close(self, index: int, end: End, stop: str | None) -> None:
        self._answer.send([event(self.chunk(index, self.said("", None), end.reason, stop))])
        if self._is_last(index, end):
            usage = {**self._base, "choices": [], "usage": self._usage()}
            self._answer.send([*([event(usage)] if self._with_usage else []), DONE])
            self._answer.end()

    def fail(self) -> None:
        """No clean end: who reads it sees that it is not whole."""
        self._answer.cut()

    def chunk(
        self, index: int, said: dict[str, Any], reason: FinishReason | None = None, stop: str | None = None
    ) -> dict[str, Any]:
        return {**self._base, "choices": [{"index": index, **said, "finish_reason": reason, "stop_reason": stop}]}
