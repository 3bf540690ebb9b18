"""The whole measurement on a tiny network with random heads."""

from typing import Any

import pytest

from backends.bench_decoding import bench as bench_module
from backends.bench_decoding.bench import Bench, Plan, TooLongError
from backends.bench_decoding.modes import MODES, PLAIN
from backends.medusa.batch import Batch, Progress

PLAN = Plan(batches=(1, 3), rounds=2, most_tokens=16)


def test_every_mode_is_measured_at_every_batch_size_and_says_what_plain_says(
    bench: Bench, prompts: list[list[int]]
) -> None:
    found = list(bench.measure("some", prompts, PLAN))
    assert [(one.of, one.batch, one.mode) for one in found] == [
        ("some", batch, mode) for batch in (1, 3) for mode in MODES
    ]
    for one in found:
        assert len(one.figures.speed_up.rounds) == (2 * (len(MODES) - 1) if one.mode == PLAIN else 2)
        assert all(value > 0 for value in one.figures.speed_up.rounds)
        assert one.figures.differing == ()
        assert one.figures.rows == len(prompts) * len(one.figures.speed_up.rounds)
        assert one.figures.tokens_a_row_step >= 1


def test_what_drafts_drafts_and_a_fixed_tree_is_verified_whole(bench: Bench, prompts: list[list[int]]) -> None:
    plan = Plan(batches=(1,), rounds=1, most_tokens=60)
    found = {one.mode: one.figures for one in bench.measure("some", prompts[:3], plan)}
    assert found[PLAIN].nodes_a_step == found[PLAIN].tokens_a_row_step == 1
    assert found["lookup"].tokens_a_row_step > 1
    assert found["lookup"].drafted == 0
    assert all(found[mode].drafted > 0 for mode in ("hydra", "hydra-no-lookup", "medusa"))
    assert found["hydra-tree-8"].drafted == 1
    assert 7 < found["hydra-tree-8"].nodes_a_step <= 8  # near an answer's end there is less to try


class Careless(Batch):
    """Forgets where the keys and values of what lookup guessed have to go."""

    def step(self) -> list[Progress]:
        found = super().step()
        if self.settings.look:
            self.slab.kept.mul_(1.5)
        return found


def test_a_mode_that_spoils_its_text_is_reported(
    bench: Bench, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "Batch", Careless)
    plan = Plan(modes=(PLAIN, "lookup", "hydra-tree-8"), batches=(3,), rounds=1, most_tokens=24)
    plain, lookup, tree = (one.figures for one in bench.measure("some", prompts, plan))
    assert plain.differing == tree.differing == ()
    assert lookup.differing
    assert all(one.margin >= 0 and one.at >= 1 and one.prompt < len(prompts) for one in lookup.differing)


def test_every_run_is_told_before_it_begins(bench: Bench, prompts: list[list[int]]) -> None:
    heard: list[str] = []
    bench.told = heard.append
    list(bench.measure("some", prompts, Plan(modes=(PLAIN, "lookup"), batches=(2,), rounds=1, most_tokens=4)))
    assert heard == ["some: computing 5 prompts", *(f"some, batch 2: {name}" for name in (PLAIN, "lookup", PLAIN))]


def test_a_prompt_without_room_in_the_context_is_refused(bench: Bench) -> None:
    with pytest.raises(TooLongError, match="a prompt of 500 tokens leaves no room"):
        list(bench.measure("some", [[1] * 500], PLAN))


def test_a_first_token_needs_a_thousand_tokens_of_prompts_and_room_for_them(bench: Bench, ticking: Any) -> None:
    for prompts in ([[1] * 2000], [[1, 2, 3]]):
        with pytest.raises(TooLongError, match="1000 tokens"):
            bench.first_token(prompts, 2)
