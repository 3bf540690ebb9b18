"""Who waits, who runs and what became of it: all of the engine but its thread and its listeners.

    waiting --a seat, and room in the cache--> prompt in parts --first token--> decoding --last token--> (gone)

Synchronous and without a clock. Whoever drives it calls `turn` while it is `busy`, and `submit` and `drop` in between.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.contract import End, Stats, TokenLogprob, Usage
from backends.medusa.batch import Batch, Progress
from backends.medusa.decoding import Decoding, Request
from backends.medusa.prefix import PrefixStore
from backends.medusa.text import Detokenizer
from backends.prefix_cache import Lease


@dataclass(slots=True, eq=False)
class Run:
    """One job on its way. `root`: where the names of its blocks begin."""

    request: Request
    root: int
    text: Detokenizer
    names: list[int] = field(default_factory=list)
    lease: Lease | None = None
    row: Decoding | None = None
    made: int = 0
    kept: int = 0  # tokens that the cache was told of

    @property
    def usage(self) -> Usage:
        cached = self.lease.hit_tokens if self.lease is not None else 0
        return Usage(len(self.request.prompt), self.made, cached)


@dataclass(frozen=True, slots=True)
class News:
    """What a turn did for a run. `failed`: it is over, and there is no answer."""

    run: Run
    pieces: Sequence[str] = ()
    logprobs: Sequence[TokenLogprob] | None = None
    prefilled: Usage | None = None
    end: End | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """`error`: what went wrong, if all that ran had to be given up."""

    news: Sequence[News]
    error: Exception | None = None


class Running:
    """First come, first served. What a run takes (seat, lease) is given back by `_retire` and nowhere else."""

    def __init__(self, batch: Batch, prefix: PrefixStore) -> None:
        self.batch, self.prefix = batch, prefix
        self._waiting: dict[Run, None] = {}
        self._seated: dict[int, Run] = {}
        self.submitted = 0
        self._peak = self._prompt_tokens = self._generated = 0
        self._finished: Counter[str] = Counter()

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._seated)

    def submit(self, run: Run) -> None:
        run.names = self.prefix.cache.names(run.request.prompt, run.root)
        self._waiting[run] = None
        self.submitted += 1

    def drop(self, run: Run) -> None:
        """Gives back what it holds, in whatever phase; nothing if it is over."""
        if run in self._waiting or (run.row is not None and self._seated.get(run.row.seat) is run):
            self._retire(run, "abort")

    def turn(self) -> Turn:
        """Seats who can be seated and does one step. An error is the end of all that run: nobody knows how far the step
        came. Who waits is not touched."""
        try:
            self._admit()
            return Turn([self._hear(progress) for progress in self.batch.step()])
        except Exception as error:
            failed = list(self._seated.values())
            for run in failed:
                self._retire(run, "error")
            return Turn([News(run, failed=True) for run in failed], error)

    def close(self) -> None:
        """Drops all."""
        for run in (*self._waiting, *self._seated.values()):
            self._retire(run, "abort")

    def stats(self) -> Stats:
        cache = self.prefix.cache
        return Stats(
            running=len(self._seated),
            waiting=len(self._waiting),
            peak_running=self._peak,
            kv_usage=cache.usage,
            blocks=cache.pool.capacity,
            block_tokens=cache.block_tokens,
            prompt_tokens=self._prompt_tokens,
            generated_tokens=self._generated,
            queried_tokens=cache.queried_tokens,
            hit_tokens=cache.hit_tokens,
            finished=dict(self._finished),
        )

    def _admit(self) -> None:
        while self._waiting and self.batch.slab.seats:
            run = next(iter(self._waiting))
            if self._is_coming(run):
                return
            prompt, force = run.request.prompt, not self._seated or not self.prefix.cache.pool.capacity
            run.lease = self.prefix.cache.take(prompt, run.root, run.names, force=force)
            if run.lease is None:
                return
            del self._waiting[run]
            hit = run.kept = run.lease.hit_tokens
            run.row = self.batch.join(run.request, hit)
            self._seated[run.row.seat] = run
            self._peak = max(self._peak, len(self._seated))
            self._prompt_tokens += len(prompt)
            self.prefix.load(run.names[: hit // self.prefix.block_tokens], run.row.seat)

    def _is_coming(self, run: Run) -> bool:
        """Whether the first block that the cache lacks is in a prompt that is being computed. Waiting for it costs
        nothing, as prompts are computed one after the other anyway."""
        depth = self.prefix.depth(run.names, len(run.request.prompt))
        return any(
            other.row is not None and other.row.prefilling and other.names[depth : depth + 1] == [run.names[depth]]
            for other in self._seated.values()
            if depth < len(run.names)
        )

    def _hear(self, progress: Progress) -> News:
        row = progress.row
        run = self._seated[row.seat]
        assert run.lease is not None
        if progress.began:
            self.prefix.commit(run.lease, row.seat)
            run.kept = len(run.request.prompt)
        usage = run.usage if progress.began else None
        self._grow(run, run.lease, row)
        run.made += len(progress.tokens)
        self._generated += len(progress.tokens)
        pieces = [run.text.feed(token) for token in progress.tokens]
        logprobs = [TokenLogprob(one.token, one.logprob, one.top) for one in progress.logprobs]
        end = End(row.finished, run.usage) if row.finished else None
        if row.finished:
            self._retire(run, row.finished)
        return News(run, pieces, logprobs if run.request.logprobs is not None else None, usage, end)

    def _grow(self, run: Run, lease: Lease, row: Decoding) -> None:
        """Tells the cache which tokens of the output have their keys and values by now."""
        start = len(run.request.prompt)
        fresh = row.output[run.kept - start : row.length - start]
        if fresh:
            run.kept += len(fresh)
            self.prefix.grow(lease, row.seat, fresh)

    def _retire(self, run: Run, reason: str) -> None:
        self._finished[reason] += 1
        self._waiting.pop(run, None)
        if run.row is not None:
            del self._seated[run.row.seat]
            self.batch.leave(run.row)
        if run.lease is not None:
            run.lease.release()
