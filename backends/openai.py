"""What OpenAI's two generating forms share: the body's common fields and the usage object."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from backends import sampling
from backends.contract import Job, Usage
from backends.wire import ApiError


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = False


class Body(msgspec.Struct, kw_only=True):
    """Fields of chat and text completions that mean something here. Everything else a client sends is ignored."""

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    cache_salt: str | None = None
    ignore_eos: bool | None = False
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    n: int | None = 1
    stop: str | list[str] | None = None

    @property
    def with_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def choices(self) -> int:
        """How many answers a prompt gets."""
        return sampling.check_whole("n", 1 if self.n is None else self.n, 1, sampling.MOST_CHOICES)

    @property
    def stops(self) -> tuple[str, ...]:
        return sampling.stop_strings(self.stop, "stop")

    def jobs(self, model: str, prompt: Sequence[int], max_tokens: int | None, logprobs: int | None = None) -> list[Job]:
        """One job for each choice of a prompt; only their seeds differ. Raises ApiError for what vLLM refuses too."""
        if max_tokens is not None and max_tokens < 1:
            raise ApiError(400, f"max_tokens must be at least 1, got {max_tokens}.", param="max_tokens")
        if self.stream_options is not None and not self.stream:
            raise ApiError(400, "Stream options can only be defined when `stream=True`.", param="stream_options")
        sampling.check_sampling(self.temperature, self.top_p)
        first = Job(
            model=model,
            prompt=prompt,
            max_tokens=max_tokens,
            salt=self.cache_salt,
            ignore_eos=bool(self.ignore_eos),
            temperature=self.temperature,
            top_p=self.top_p,
            logprobs=logprobs,
        )
        return [replace(first, seed=seed) for seed in sampling.seeds(self.seed, self.choices)]


def usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
