"""What things cost. Pure numbers: no clock, no queue.

* Prefill: `uncached prompt tokens / prefill_tokens_per_second`. One prompt at a time, first come first served.
* Decode: each running sequence makes one token a step. A step with one sequence takes `1 / decode_tokens_per_second`;
  every further sequence makes it `CROWDING` longer, so 64 sequences decode at 61% of the single speed each, and at 39
  times the single speed in all. That is the usual shape on a GPU, where the weights are read once for the whole
  batch.
* All times are multiplied by `time_scale`; 0 makes everything immediate.

Prefill does not slow decoding down (chunked prefill makes that effect small), and no time is charged for the cache.
"""

from dataclasses import dataclass

CROWDING = 0.01
"""Of the order of measured step times of 7-14B models between batch 1 and 64: about 1.5 to 2 times longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    prefill_tokens_per_second: float = 8000.0
    decode_tokens_per_second: float = 60.0
    time_scale: float = 1.0

    def prefill_seconds(self, uncached_tokens: int) -> float:
        return self.time_scale * uncached_tokens / self.prefill_tokens_per_second

    def step_seconds(self, decoding: int) -> float:
        """The time in which each of `decoding` sequences makes one token."""
        return self.time_scale * (1 + CROWDING * (decoding - 1)) / self.decode_tokens_per_second
