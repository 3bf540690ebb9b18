"""How much sooner the first token comes when a prompt's beginning was computed before.

Cold: the whole prompt is computed. Warm: whole blocks of its beginning are looked up in the prefix cache and copied to
the row's seat, and only the rest is computed. Both are timed from taking the prompt to its first token, one after the
other, round after round.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backends.bench_decoding.figures import Spread
from backends.bench_decoding.meter import Clocks, Meter
from backends.medusa.batch import Batch
from backends.medusa.decoding import Request
from backends.medusa.prefix import PrefixStore
from backends.prefix_cache import root_of

BLOCK_TOKENS = 16  # as the worker has it
ROOT = root_of("bench-decoding")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """Seconds of one first token, by round; `ratio`: cold over warm. `prefix`, `fresh`: tokens; `cached`: those of the
    prefix that came from the cache. `same`: rounds in which cold and warm said the same token; `by_cpu`: whether the
    seconds are CPU seconds."""

    prefix: int
    fresh: int
    cached: int
    cold: Spread
    warm: Spread
    ratio: Spread
    same: int
    by_cpu: bool


def first_token(batch: Batch, prefix: Sequence[int], fresh: Sequence[Sequence[int]], clocks: Clocks) -> FirstToken:
    """One round for each of `fresh`, which are of equal length. The batch has no rows, before and after."""
    store = PrefixStore(batch.slab, len(prefix) // BLOCK_TOKENS + 1, BLOCK_TOKENS)
    fill(store, batch, prefix)
    cold, warm, same = [], [], 0
    for new in fresh:
        seconds, token = once(batch, [*prefix, *new], None, clocks)
        cold.append(seconds)
        seconds, other = once(batch, [*prefix, *new], store, clocks)
        warm.append(seconds)
        same += token == other
    return FirstToken(
        prefix=len(prefix),
        fresh=len(fresh[0]),
        cached=len(prefix) // BLOCK_TOKENS * BLOCK_TOKENS,
        cold=Spread(tuple(cold)),
        warm=Spread(tuple(warm)),
        ratio=Spread(tuple(one / other for one, other in zip(cold, warm, strict=True))),
        same=same,
        by_cpu=clocks.cpu is not None,
    )


def fill(store: PrefixStore, batch: Batch, prefix: Sequence[int]) -> None:
    """Computes the prefix and keeps its blocks."""
    lease = store.cache.take(prefix, ROOT, force=True)
    row = batch.join(Request(prompt=prefix, most_tokens=1))
    try:
        while not row.output:
            batch.step()
        if lease is not None:
            store.commit(lease, row.seat)
            lease.release()
    finally:
        batch.leave(row)


def once(batch: Batch, prompt: Sequence[int], store: PrefixStore | None, clocks: Clocks) -> tuple[float, int]:
    """Seconds to the first token, and the token. `store` None: cold."""
    with Meter(clocks) as meter:
        names = store.cache.names(prompt, ROOT) if store is not None else []
        hits = store.depth(names, len(prompt)) if store is not None else 0
        row = batch.join(Request(prompt=prompt, most_tokens=1), hits * BLOCK_TOKENS)
        try:
            if store is not None:
                store.load(names[:hits], row.seat)
            while not row.output:
                batch.step()
        finally:
            batch.leave(row)
    return meter.wall if meter.cpu is None else meter.cpu, row.root
