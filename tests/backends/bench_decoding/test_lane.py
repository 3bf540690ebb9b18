"""Rows join and leave, and only the steps are timed."""

from collections.abc import Callable
from typing import Any

import pytest

from backends.bench_decoding.lane import Lane
from backends.bench_decoding.meter import Clocks
from backends.bench_decoding.prefilled import Prefilled
from backends.medusa.batch import Batch, Progress, Settings
from backends.medusa.costs import Costs, Curve
from backends.medusa.decoding import Request
from backends.medusa.kv import Slab
from backends.medusa.model import Llama

STILL = Clocks(lambda: 0.0)
Make = Callable[..., Lane]


def batch_of(model: Llama, rows: int, *, look: bool = False, kind: type[Batch] = Batch) -> Batch:
    slab = Slab(model.shape, rows, 256, model.dtype, model.device)
    return kind(model, slab, Costs(Curve((1, 64), (1.0, 1.1))), lambda: 0.0, None, Settings(look=look))


@pytest.fixture
def lane(tiny: Llama) -> Make:
    def make(width: int, most_tokens: int = 24, end: int = -1, **more: Any) -> Lane:
        return Lane(batch_of(tiny, width, **more), width, most_tokens, end)

    return make


@pytest.fixture
def ready(tiny: Llama, prompts: list[list[int]]) -> list[Prefilled]:
    return [Prefilled.computed(batch_of(tiny, 1), prompt) for prompt in prompts]


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("look", [False, True])
def test_every_prompt_gets_the_answer_it_gets_alone(
    lane: Make, ready: list[Prefilled], tiny: Llama, width: int, look: bool
) -> None:
    found = lane(width, look=look).run(ready, STILL)
    for prompt, said in zip(ready, found.outputs, strict=True):
        batch = batch_of(tiny, 1)
        row = batch.join(Request(prompt=prompt.prompt, most_tokens=24))
        while not row.finished:
            batch.step()
        assert said == row.output


def test_plain_decoding_counts_one_token_a_row_and_step(lane: Make, ready: list[Prefilled]) -> None:
    found = lane(2).run(ready, STILL)
    assert found.every.tokens == sum(len(said) - 1 for said in found.outputs) == found.row_steps == found.nodes
    assert found.drafted == 0


def test_lookup_gets_more_than_one_token_from_a_step(lane: Make, ready: list[Prefilled]) -> None:
    found = lane(2, most_tokens=60, look=True).run(ready, STILL)
    assert found.every.tokens == sum(len(said) - 1 for said in found.outputs) > found.row_steps
    assert found.nodes > found.row_steps


def test_a_row_that_ends_gives_its_seat_to_the_next_at_once(lane: Make, ready: list[Prefilled]) -> None:
    """Five answers of 23 steps: two seats are full for four of them, and the last row runs alone."""
    found = lane(2).run(ready, STILL)
    assert (found.steps, found.row_steps) == (3 * 23, 5 * 23)
    assert found.full.tokens == 4 * 23


def test_an_answer_ends_with_its_end_token_even_if_that_is_its_first(lane: Make, ready: list[Prefilled]) -> None:
    end = ready[0].first
    found = lane(2, end=end).run(ready, STILL)
    assert found.outputs[0] == [end]
    assert all(said[-1] == end or len(said) == 24 for said in found.outputs)


def test_all_seats_are_given_back_and_the_batch_goes_on_with_the_next_round(lane: Make, ready: list[Prefilled]) -> None:
    one = lane(4)
    first, second = one.run(ready, STILL), one.run(ready, STILL)
    assert first.outputs == second.outputs
    assert one.batch.slab.seats == 4
    assert not one.batch.rows


def test_time_that_passes_between_steps_is_not_counted(lane: Make, ready: list[Prefilled]) -> None:
    moment = 0.0

    class Slow(Batch):
        def join(self, *args: Any, **more: Any) -> Any:
            nonlocal moment
            moment += 1000.0
            return super().join(*args, **more)

        def step(self) -> list[Progress]:
            nonlocal moment
            moment += 1.0
            return super().step()

    found = lane(2, kind=Slow).run(ready, Clocks(lambda: moment, lambda: moment / 2))
    assert found.every.wall == found.steps
    assert found.every.cpu == found.steps / 2
    assert 0 < found.full.wall < found.every.wall
