"""What a job asks for, as the decoding core wants it; or why it is refused."""

from collections.abc import Callable
from dataclasses import dataclass

from backends.contract import Job, JobRefusedError
from backends.medusa.decoding import Request
from backends.medusa.sampling import Nucleus, Sampler, Typical

GREEDY_BELOW = 1e-5  # temperatures under which a division by them overflows; vLLM takes these for greedy too


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`vocabulary`: how many tokens there are; `end`: the one that ends an answer; `typical`: sampled rows take typical
    acceptance, which is not lossless."""

    max_model_len: int
    vocabulary: int
    end: int
    typical: bool = False


def request_of(job: Job, limits: Limits, chance: Callable[[], int]) -> Request:
    """`chance`: a seed for whoever brings none, 0 to 2**63 - 1. Raises JobRefusedError."""
    if job.embed:
        raise JobRefusedError("This model makes no embeddings: it only generates.")
    if not job.prompt:
        raise JobRefusedError("The prompt is empty.")
    if max(job.prompt) >= limits.vocabulary:
        raise JobRefusedError(f"The prompt has a token id outside the vocabulary of {limits.vocabulary} tokens.")
    left = limits.max_model_len - len(job.prompt)
    most = left if job.max_tokens is None else min(job.max_tokens, left)
    if most < 1:
        raise JobRefusedError(f"A prompt of {len(job.prompt)} tokens leaves no room for an answer.")
    return Request(
        prompt=tuple(job.prompt),
        most_tokens=most,
        ends=() if job.ignore_eos else (limits.end,),
        sampler=sampler_of(job, chance, typical=limits.typical),
        logprobs=job.logprobs,
    )


def sampler_of(job: Job, chance: Callable[[], int], *, typical: bool) -> Sampler | None:
    """None is greedy: that is what a job without a temperature gets."""
    if job.temperature is None or job.temperature < GREEDY_BELOW:
        return None
    kind = Typical if typical else Nucleus
    return kind(job.temperature, job.top_p or 1.0, chance() if job.seed is None else job.seed)
