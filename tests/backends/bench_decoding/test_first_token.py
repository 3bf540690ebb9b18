"""The first token, cold and warm."""

from typing import Any

import pytest

from backends.bench_decoding.first_token import BLOCK_TOKENS, first_token
from backends.bench_decoding.meter import Clocks
from backends.medusa.batch import Batch, Progress, Settings
from backends.medusa.costs import Costs, Curve
from backends.medusa.kv import Slab
from backends.medusa.model import Llama

PREFIX = [at * 7 % 90 for at in range(100)]
FRESH = [[at, 3, 5, 8] for at in range(3)]


class Counting(Batch):
    """Time passes by a second for each token that is computed."""

    computed = 0

    def step(self) -> list[Progress]:
        before = sum(row.length for row in self.rows)
        found = super().step()
        self.computed += sum(row.length for row in self.rows) - before
        return found


@pytest.fixture
def batch(tiny: Llama) -> Counting:
    slab = Slab(tiny.shape, 1, 256, tiny.dtype, tiny.device)
    costs = Costs(Curve((1, 64), (1.0, 2.0)))
    return Counting(tiny, slab, costs, lambda: 0.0, None, Settings(prefill_tokens=40))


def test_warm_computes_only_what_no_whole_block_holds_and_says_the_same(batch: Counting) -> None:
    found = first_token(batch, PREFIX, FRESH, Clocks(lambda: float(batch.computed)))
    cached = len(PREFIX) // BLOCK_TOKENS * BLOCK_TOKENS
    assert found.cold.rounds == (104.0,) * 3
    assert found.warm.rounds == (104.0 - cached,) * 3
    assert found.ratio.median == 104 / (104 - cached)
    assert (found.prefix, found.fresh, found.cached, found.same) == (100, 4, cached, 3)
    assert not found.by_cpu


def test_cpu_seconds_are_used_where_there_are_any(batch: Counting) -> None:
    found = first_token(batch, PREFIX, FRESH[:1], Clocks(lambda: 0.0, lambda: batch.computed / 2))
    assert found.by_cpu
    assert found.cold.median == 52.0


def test_nothing_stays_in_the_batch_even_if_a_step_fails(batch: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(lambda: float(batch.computed))
    first_token(batch, PREFIX, FRESH[:1], clocks)
    assert (batch.slab.seats, batch.rows) == (1, [])

    def fail(*args: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(batch.model, "forward", fail)
    with pytest.raises(RuntimeError):
        first_token(batch, PREFIX, FRESH[:1], clocks)
    assert (batch.slab.seats, batch.rows) == (1, [])
