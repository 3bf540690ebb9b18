"""A prompt that is kept aside goes on as if it had been computed just now."""

import torch

from backends.bench_decoding.prefilled import Prefilled
from backends.medusa.batch import Batch, Settings
from backends.medusa.costs import Costs, Curve
from backends.medusa.decoding import Request
from backends.medusa.kv import Slab
from backends.medusa.model import Llama
from tests.support.llamas import tiny_llama


def batch_of(model: Llama, rows: int = 2) -> Batch:
    slab = Slab(model.shape, rows, 128, model.dtype, model.device)
    return Batch(model, slab, Costs(Curve((1, 64), (1.0, 2.0))), lambda: 0.0, None, Settings(look=False))


def test_it_says_what_the_same_prompt_says_when_it_is_computed(tiny: Llama, prompts: list[list[int]]) -> None:
    for prompt in prompts:
        batch = batch_of(tiny)
        whole = batch.join(Request(prompt=prompt, most_tokens=20))
        while not whole.finished:
            batch.step()
        row = Prefilled.computed(batch_of(tiny), prompt).joined(batch_of(tiny), 20, -1, ())
        assert row.output == whole.output[:1]
        other = batch_of(tiny)
        row = Prefilled.computed(batch_of(tiny), prompt).joined(other, 20, -1, ())
        while not row.finished:
            other.step()
        assert row.output == whole.output


def test_no_seat_stays_taken(tiny: Llama) -> None:
    batch = batch_of(tiny)
    Prefilled.computed(batch, [1, 2, 3])
    assert batch.slab.seats == 2
    assert not batch.rows


def test_heads_get_the_states_they_look_at_and_no_others() -> None:
    model = tiny_llama(taps=(0, 1), context=256)
    kept = Prefilled.computed(batch_of(model), [1, 2, 3])
    assert kept.states.shape == (3, 32)
    for taps, rows in (((), [0]), ((1,), [0, 2]), ((0, 1), [0, 1, 2])):
        row = kept.joined(batch_of(model), 8, -1, taps)
        assert row.states is not None
        assert torch.equal(row.states, kept.states[rows])
