"""OpenAI's embeddings: one prefill each, no tokens, a vector at the end."""

from array import array
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from backends.contract import End, Job, TokenLogprob, Usage
from backends.face import Call, Route
from backends.prompts import token_lists
from backends.wire import internal_error, read, send_json


class EmbeddingBody(msgspec.Struct, kw_only=True):
    input: Any
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = None


def handle(call: Call) -> None:
    body = read(call.body(), EmbeddingBody)
    model = call.model(body.model)
    lists = token_lists(body.input, call.engine.tokenizer, "input")
    jobs = [Job(model=model, prompt=ids, embed=True) for ids in lists]
    together = Vectors(call, body, model, len(jobs))
    call.start(jobs, [Vector(index, together) for index in range(len(jobs))])


class Vectors:
    """The answer that all inputs of one request share."""

    def __init__(self, call: Call, body: EmbeddingBody, model: str, count: int) -> None:
        self._call = call
        self._body = body
        self._model = model
        self._ends: list[End | None] = [None] * count

    def set(self, index: int, end: End) -> None:
        self._ends[index] = end
        ends = [known for known in self._ends if known is not None]
        if len(ends) < len(self._ends):
            return
        tokens = sum(known.usage.prompt_tokens for known in ends)
        value = {
            "id": self._call.name("embd"),
            "object": "list",
            "created": self._call.created,
            "model": self._model,
            "data": [
                {"index": place, "object": "embedding", "embedding": self._shown(known.vector or ())}
                for place, known in enumerate(ends)
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
        }
        send_json(self._call.answer, value)

    def fail(self) -> None:
        error = internal_error()
        send_json(self._call.answer, error.openai(), error.status)

    def _shown(self, vector: Sequence[float]) -> Sequence[float] | str:
        """Numbers, or their little-endian 32-bit floats in base64, which is what OpenAI's client asks for by itself."""
        vector = vector[: self._body.dimensions]
        if self._body.encoding_format != "base64":
            return vector
        return b64encode(array("f", vector).tobytes()).decode()


class Vector:
    """One input's sink."""

    def __init__(self, index: int, together: Vectors) -> None:
        self._index = index
        self._together = together

    def prefilled(self, usage: Usage) -> None: ...

    def tokens(self, pieces: Sequence[str], logprobs: Sequence[TokenLogprob] | None = None) -> None: ...

    def finished(self, end: End) -> None:
        self._together.set(self._index, end)

    def failed(self) -> None:
        self._together.fail()


ROUTES = (Route("POST", "/v1/embeddings", handle, generates=True),)
