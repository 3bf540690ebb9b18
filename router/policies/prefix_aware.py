"""Amazon SageMaker's prefix-aware routing, by its two documented knobs, to compare with.

The first `prefix_length` bytes of the body (native calls) or characters of the prompt (OpenAI calls) decide the worker;
one with `concurrency_threshold` requests in flight is passed over for the least loaded.
Source: Amazon SageMaker Developer Guide, prefix-aware routing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict, Field

from router.contracts import Ask, Candidate, PolicyTools, Ranked, Ring
from router.core.balance import by_requests, by_work
from router.core.fingerprint import prefix_hash
from router.types import Reason


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    prefix_length: int = Field(4096, ge=1024, le=65536, description="bytes (native) or characters that decide")
    concurrency_threshold: int = Field(64, ge=1, le=1024, description="requests in flight at which a worker is full")


class PrefixAware:
    def __init__(self, options: Options, ring: Ring) -> None:
        self.options = options
        self.ring = ring

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        text = ask.body if ask.native else ask.text
        if not text:
            yield from by_work(candidates, now)
            return
        home = self.ring.nearest(self._key(text, ask), {c.id for c in candidates})
        full = self.options.concurrency_threshold
        for c in candidates:
            if c.id == home and c.load.in_flight < full:
                yield Ranked(c.id, Reason.HOME, 0.0, float(c.load.in_flight))
                yield from by_requests([other for other in candidates if other is not c], Reason.SPILL)
                return
        yield from by_requests(candidates, Reason.SPILL)

    def _key(self, text: bytes, ask: Ask) -> int:
        length = self.options.prefix_length
        if not ask.native and not text.isascii():
            head = text[: length * 4].decode("utf-8", "replace")[:length]
            encoded = head.encode()
            return prefix_hash(encoded, ask.seed, len(encoded))
        return prefix_hash(text, ask.seed, length)


def build(options: Options, tools: PolicyTools) -> PrefixAware:
    return PrefixAware(options, tools.ring)
