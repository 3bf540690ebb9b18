"""The mock engine: the schedule says when, the cache says what is computed, the prose says what is said.

One timer for the whole engine. It rings when the schedule's next event is due, plays everything up to now and hands
each sequence its tokens at once, so that a late ring costs nothing but lateness. Time comes from a clock handed in
and timers from a loop-like object: tests bring their own.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backends.contract import End, FinishReason, Job, JobRefusedError, Sink, Stats, TokenLogprob, Usage
from backends.mock.prose import Prose, logprob_of
from backends.mock.schedule import Schedule, Step
from backends.mock.timing import CostModel
from backends.mock.tokenizer import MockTokenizer
from backends.mock.vector import vector_of
from backends.prefix_cache import Lease, PrefixCache, root_of

DEFAULT_LENGTH = 16
FINEST_WAIT = 0.001
"""Timers of event loops are about this fine; asking for less would ring early and again."""


class Cancellable(Protocol):
    def cancel(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Time:
    """Where time comes from: a monotonic clock, and a way to be called after so many seconds."""

    now: Callable[[], float]
    later: Callable[[float, Callable[[], None]], Cancellable]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What kind of worker this is."""

    models: Sequence[str] = ("mock-model",)
    cost: CostModel = field(default_factory=CostModel)
    max_running: int = 64
    seed: int = 0
    max_model_len: int = 131_072


@dataclass(slots=True)
class News:
    """What a sequence's sink has to be told: everything since it was last told."""

    prefilled: Usage | None = None
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    end: End | None = None


class MockSequence:
    """One started job; also its owner's handle. `live` until it gives back what it holds, `deaf` once aborted."""

    def __init__(self, engine: "MockEngine", job: Job, sink: Sink) -> None:
        self.job = job
        self.sink = sink
        self.root = root_of(job.model, job.salt)
        self.names = engine.cache.names(job.prompt, self.root)
        self.lease: Lease | None = None
        self.made = 0
        self.uncomputed: list[int] = []  # the last token made: its keys and values exist only after one more step
        self.prose = Prose(engine.shape.seed, job.prompt)
        self.live = True
        self.deaf = False
        self._engine = engine

    @property
    def length(self) -> int:
        if self.job.embed:
            return 0
        if self.job.max_tokens is not None:
            return self.job.max_tokens
        left = max(0, DEFAULT_LENGTH - self.prose.spoken)
        return min(left, self._engine.max_model_len - len(self.job.prompt))

    @property
    def usage(self) -> Usage:
        cached = self.lease.hit_tokens if self.lease is not None else 0
        return Usage(len(self.job.prompt), self.made, cached)

    def abort(self) -> None:
        self._engine.abort(self)


class MockEngine:
    has_logprobs = True

    def __init__(self, shape: Shape, cache: PrefixCache, time: Time) -> None:
        self.shape = shape
        self.cache = cache
        self.tokenizer = MockTokenizer()
        self._time = time
        self._schedule: Schedule[MockSequence] = Schedule(shape.cost, shape.max_running, self._admit, self._hear)
        self._alarm: Cancellable | None = None
        self._live: set[MockSequence] = set()
        self._news: dict[MockSequence, News] = {}
        self._peak = 0
        self._prompt_tokens = 0
        self._generated = 0
        self._finished: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<MockEngine {self._schedule!r}, {self.cache!r}>"

    @property
    def models(self) -> Sequence[str]:
        return self.shape.models

    @property
    def max_model_len(self) -> int:
        return self.shape.max_model_len

    def start(self, job: Job, sink: Sink) -> MockSequence:
        if not job.prompt:
            raise JobRefusedError("The prompt is empty.")
        sequence = MockSequence(self, job, sink)
        self._catch_up()
        self._live.add(sequence)
        self._schedule.submit(sequence, sequence.length, self._time.now())
        self._arm()
        return sequence

    def abort(self, sequence: MockSequence) -> None:
        sequence.deaf = True
        if not sequence.live:
            return
        self._retire(sequence, "abort")
        self._catch_up()
        self._schedule.cancel(sequence, self._time.now())
        self._arm()

    def stats(self) -> Stats:
        return Stats(
            running=self._schedule.running,
            waiting=self._schedule.waiting,
            peak_running=self._peak,
            kv_usage=self.cache.usage,
            blocks=self.cache.pool.capacity,
            block_tokens=self.cache.block_tokens,
            prompt_tokens=self._prompt_tokens,
            generated_tokens=self._generated,
            queried_tokens=self.cache.queried_tokens,
            hit_tokens=self.cache.hit_tokens,
            finished=dict(self._finished),
        )

    def close(self) -> None:
        for sequence in list(self._live):
            self.abort(sequence)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _admit(self, sequence: MockSequence, alone: bool) -> int | None:
        job = sequence.job
        sequence.lease = self.cache.take(job.prompt, sequence.root, sequence.names, force=alone)
        if sequence.lease is None:
            return None
        self._prompt_tokens += len(job.prompt)
        self._peak = max(self._peak, self._schedule.running + 1)
        return len(job.prompt) - sequence.lease.hit_tokens

    def _ring(self) -> None:
        """The engine's own turn of the event loop: the only place from which sinks are called.

        A sink may start and abort sequences. What that makes happen is news for the next ring: nothing overtakes.
        """
        self._alarm = None
        self._catch_up()
        news, self._news = self._news, {}
        for sequence, what in news.items():
            self._tell(sequence, what)
        self._arm()

    def _catch_up(self) -> None:
        self._schedule.advance(self._time.now())

    def _arm(self) -> None:
        """Sets the one timer anew: at once if there is something to tell, else for the next event."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        due = self._time.now() if self._news else self._schedule.due()
        if due is not None:
            wait = due - self._time.now()
            self._alarm = self._time.later(0.0 if wait <= 0 else max(wait, FINEST_WAIT), self._ring)

    def _hear(self, step: Step[MockSequence]) -> None:
        """Does what a step means for the cache, at once: the next prefill may need just these blocks."""
        sequence = step.sequence
        if not sequence.live or sequence.lease is None:
            return
        news = self._news.setdefault(sequence, News())
        if step.prefilled:
            sequence.lease.commit()
            news.prefilled = sequence.usage
        if step.tokens:
            ids, texts = sequence.prose.take(step.tokens)
            sequence.lease.grow([*sequence.uncomputed, *ids[:-1]])
            sequence.uncomputed = ids[-1:]
            sequence.made += step.tokens
            self._generated += step.tokens
            news.texts += texts
            if sequence.job.logprobs is not None:
                news.logprobs += [logprob_of(token, sequence.job.logprobs) for token in ids]
        if step.over:
            news.end = self._end(sequence)
            self._retire(sequence, news.end.reason)

    def _tell(self, sequence: MockSequence, news: News) -> None:
        if news.prefilled is not None and not sequence.deaf:
            sequence.sink.prefilled(news.prefilled)
        if news.texts and not sequence.deaf:
            sequence.sink.tokens(news.texts, None if sequence.job.logprobs is None else news.logprobs)
        if news.end is not None and not sequence.deaf:
            sequence.sink.finished(news.end)

    def _end(self, sequence: MockSequence) -> End:
        """An answer cut at the asked length ends with `length`; one whose length was ours ends as if all was said."""
        reason: FinishReason = "stop" if sequence.job.max_tokens is None else "length"
        vector = vector_of(sequence.job.prompt, self.shape.seed) if sequence.job.embed else None
        return End(reason, sequence.usage, vector)

    def _retire(self, sequence: MockSequence, reason: str) -> None:
        """The one place where a sequence gives back what it has."""
        sequence.live = False
        self._live.discard(sequence)
        self._finished[reason] += 1
        if sequence.lease is not None:
            sequence.lease.release()
