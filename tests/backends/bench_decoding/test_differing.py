"""A mode that says something else is found out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.bench_decoding.differing import differences, first_difference, margin_after
from backends.bench_decoding.figures import Difference, Run, Trial
from backends.bench_decoding.prefilled import Prefilled
from backends.medusa.batch import Batch
from backends.medusa.costs import Costs, Curve
from backends.medusa.kv import Pass, Slab, Span
from backends.medusa.model import Llama

answers = st.lists(st.integers(0, 3), max_size=6)


@given(answers, answers)
def test_the_first_difference_is_where_equal_beginnings_end(one: list[int], other: list[int]) -> None:
    at = first_difference(one, other)
    if at is None:
        assert one == other
    else:
        assert one[:at] == other[:at]
        assert one[at : at + 1] != other[at : at + 1]


def trial(said: list[list[int]], plain: list[list[int]]) -> Trial:
    return Trial(Run(outputs=plain), Run(outputs=said), Run())


def test_every_answer_that_differs_is_reported_with_its_margin_in_every_round() -> None:
    plain = [[1, 2, 3], [4, 5, 6], [7, 8]]
    asked: list[tuple[int, list[int]]] = []

    def margin(prompt: int, answer: list[int]) -> float:
        asked.append((prompt, answer))
        return 0.25

    trials = [trial([[1, 2, 3], [4, 0, 6], [7]], plain), trial(plain, plain), trial([[0, 2, 3], *plain[1:]], plain)]
    assert list(differences(trials, margin)) == [
        Difference(1, 1, 0.25),
        Difference(2, 1, 0.25),
        Difference(0, 0, 0.25),
    ]
    assert asked == [(1, [4]), (2, [7]), (0, [])]


def test_the_margin_is_that_of_the_whole_text(tiny: Llama) -> None:
    def slab() -> Slab:
        return Slab(tiny.shape, 1, 160, tiny.dtype, tiny.device)

    prompt = Prefilled.computed(Batch(tiny, slab(), Costs(Curve((1, 64), (1.0, 2.0))), lambda: 0.0), [5, 9, 2, 7])
    for answer in ([3], [3, 8, 8, 1]):
        ids = torch.tensor([*prompt.prompt, *answer])
        hidden, _ = tiny.forward(ids, torch.arange(len(ids)), Pass(slab(), [Span(0, 0, len(ids))]))
        best = tiny.logits(hidden)[-1].sort(descending=True).values
        one = slab()
        assert margin_after(tiny, one, prompt, answer) == pytest.approx(float(best[0] - best[1]), abs=1e-4)
        assert one.seats == 1
