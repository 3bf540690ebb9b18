"""Self-distillation from prompts to a file, with a tiny network."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.medusa.heads_file import load, sizes
from backends.medusa.weights import ModelFileError, read
from backends.train_heads import run as running
from backends.train_heads.corpus import Corpus
from backends.train_heads.recipe import Recipe
from backends.train_heads.run import Made, Plan, identity, planned, run, taps_of
from backends.train_heads.selection import Limits
from tests.support.llamas import random_weights

RECIPE = Recipe(depth=3, inner=16, vocabulary=128, steps=30, windows=4, rate=0.01, warm_up=5)


class Heard:
    """A watch that writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stages: dict[str, list[tuple[int, str]]] = {}

    def say(self, line: str) -> None:
        self.lines.append(line)

    @contextmanager
    def stage(self, label: str, total: int) -> Iterator[Callable[[int, str], None]]:
        self.stages[label] = []
        yield lambda done, note: self.stages[label].append((done, note))


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SHARD", 8)


def plan_of(work: Path, model: Path, **other: Any) -> Plan:
    fields: dict[str, Any] = {
        "work": work, "out": work / "heads.safetensors", "recipe": RECIPE, "limits": Limits(24, 8), "model": model,
        "seats": 4, "most_tokens": 24,
    }  # fmt: skip
    return Plan(**(fields | other))


def made(plan: Plan) -> Made:
    result = run(plan, Heard())
    assert result is not None
    return result


def answers(work: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (work / "answers").iterdir()}


def test_it_ends_in_a_file_that_loads_and_says_how_good_it_is(tmp_path: Path, tiny_folder: Path) -> None:
    result = made(plan_of(tmp_path / "w", tiny_folder))
    shape = read(tiny_folder).shape
    heads = load(result.path, sizes(shape.layers, shape.width, shape.vocabulary))
    assert heads.kind == "hydra"
    assert heads.taps == taps_of(shape.layers)
    assert heads.paths == result.heads.paths
    assert heads.accuracy == {kind: each.accuracy for kind, each in result.sets.items()}
    assert heads.about["recipe"]["steps"] == RECIPE.steps
    assert heads.about["model"] == tiny_folder.name
    assert result.positions > 0
    for name, weight in heads.weights.items():
        torch.testing.assert_close(weight, result.heads.weights[name], rtol=1e-5, atol=0)


def test_the_same_seed_gives_the_same_file_and_another_seed_another_one(tmp_path: Path, tiny_folder: Path) -> None:
    one, again = (made(plan_of(tmp_path / name, tiny_folder)).path.read_bytes() for name in "ab")
    other = made(plan_of(tmp_path / "c", tiny_folder, recipe=replace(RECIPE, seed=1))).path.read_bytes()
    assert one == again
    assert one != other


def test_a_second_run_answers_and_trains_nothing_anew(tmp_path: Path, tiny_folder: Path) -> None:
    plan, heard = plan_of(tmp_path / "w", tiny_folder), Heard()
    first, there = made(plan).path.read_bytes(), answers(plan.work)
    assert run(plan, heard) is not None
    assert plan.out.read_bytes() == first
    assert answers(plan.work) == there
    assert heard.stages == {"steps": []}


def test_parts_that_answer_side_by_side_do_the_same_as_one_process(tmp_path: Path, tiny_folder: Path) -> None:
    whole = made(plan_of(tmp_path / "whole", tiny_folder)).path.read_bytes()
    parts = plan_of(tmp_path / "parts", tiny_folder, only="answers")
    for index in (2, 1):
        assert run(replace(parts, part=(index, 2)), Heard()) is None
    assert answers(tmp_path / "parts").keys() == answers(tmp_path / "whole").keys()
    assert made(replace(parts, only="heads")).path.read_bytes() == whole


def test_heads_can_be_trained_on_the_answers_that_are_there_and_go_on_with_more(
    tmp_path: Path, tiny_folder: Path
) -> None:
    half = plan_of(tmp_path / "w", tiny_folder, only="answers", part=(1, 2))
    run(half, Heard())
    heard = Heard()
    early = run(replace(half, only="heads", part=(1, 1)), heard)
    assert early is not None
    assert early.shards[0] < early.shards[1]
    assert any("shards of answers are there" in line for line in heard.lines)
    (state,) = half.work.glob("*.state")
    more = made(plan_of(half.work, tiny_folder, start=state))
    assert more.positions > early.positions
    assert more.shards[0] == more.shards[1]
    assert len(list(half.work.glob("*.state"))) == 2


def test_without_answers_there_is_nothing_to_learn(tmp_path: Path, tiny_folder: Path) -> None:
    with pytest.raises(ValueError, match="run without --only heads first"):
        run(plan_of(tmp_path / "w", tiny_folder, only="heads"), Heard())


def test_a_stop_while_answering_loses_one_shard_at_most(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, writes = plan_of(tmp_path / "w", tiny_folder, only="answers"), []
    write = running.write_shards

    def stopped(answering: Any, shards: Any, told: Any) -> None:
        def heard(done: int, tokens: int) -> None:
            writes.append(done)
            if done == 12:
                raise KeyboardInterrupt
            told(done, tokens)

        write(answering, shards, heard)

    monkeypatch.setattr(running, "write_shards", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(plan, Heard())
    first = answers(plan.work)
    assert len(first) == 1
    monkeypatch.undo()
    run(plan, Heard())
    assert first.items() < answers(plan.work).items()


def test_prompts_without_room_are_left_out_and_counted(tmp_path: Path, tiny_folder: Path) -> None:
    plan, heard = plan_of(tmp_path / "w", tiny_folder), Heard()
    shards = planned(plan, read(tiny_folder), heard)
    room = read(tiny_folder).shape.context - plan.most_tokens
    assert all(len(asked.ids) <= room for shard in shards.values() for asked in shard)
    assert any(f"longer than {room} tokens" in line for line in heard.lines)


def test_ones_own_prompts_are_asked_too(tmp_path: Path, tiny_folder: Path) -> None:
    (tmp_path / "mine.jsonl").write_text("".join(f'{{"prompt": "Question {number}?"}}\n' for number in range(30)))
    result = made(plan_of(tmp_path / "w", tiny_folder, more=tmp_path / "mine.jsonl"))
    assert "own" in result.sets


def test_mt_bench_is_judged_and_has_no_say_in_the_tree(tmp_path: Path, tiny_folder: Path) -> None:
    (tmp_path / "mt_bench_question.jsonl").write_text('{"turns": ["Why is the sky blue?"]}\n')
    plain, beside = (
        made(plan_of(tmp_path / name, tiny_folder, traces=traces)) for name, traces in (("a", None), ("b", tmp_path))
    )
    assert beside.sets.keys() - plain.sets.keys() == {"mt_bench"}
    assert beside.heads.paths == plain.heads.paths
    assert beside.positions == plain.positions


def test_all_held_out_answers_stay_out_of_training(tmp_path: Path, tiny_folder: Path) -> None:
    plan = plan_of(tmp_path / "w", tiny_folder)
    result = made(plan)
    corpus = Corpus(list(planned(plan, read(tiny_folder), Heard())))
    assert result.positions == corpus.positions(seen=True)
    assert corpus.positions(seen=False) > 0


def test_a_medusa_run_makes_medusa_heads(tmp_path: Path, tiny_folder: Path) -> None:
    result = made(plan_of(tmp_path / "w", tiny_folder, recipe=replace(RECIPE, kind="medusa")))
    assert load(result.path).kind == "medusa"
    assert load(result.path).taps == ()


def test_a_model_whose_output_matrix_is_its_own_is_refused(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = read(tiny_folder)
    untied = replace(checkpoint, weights=random_weights(checkpoint.shape, tied=False))
    monkeypatch.setattr(running, "read", lambda _: untied)
    with pytest.raises(ModelFileError, match="heads need a tied model"):
        run(plan_of(tmp_path / "w", tiny_folder), Heard())


def test_another_network_of_the_same_sizes_is_another(tiny_folder: Path) -> None:
    checkpoint = read(tiny_folder)
    tuned: Mapping[str, torch.Tensor] = {name: weight * 1.001 for name, weight in checkpoint.weights.items()}
    assert identity(checkpoint) == identity(read(tiny_folder))
    assert identity(checkpoint) != identity(replace(checkpoint, weights=dict(tuned)))


def test_the_taps_of_the_packaged_model() -> None:
    assert taps_of(30) == (9, 20)
    assert taps_of(2) == (0, 1)
