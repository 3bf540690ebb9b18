"""Training: what is learned, from what, and that a stop changes nothing."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import Tensor

from backends.medusa.heads import KINDS
from backends.medusa.heads_file import HeadsFile, save, sizes
from backends.train_heads.corpus import Corpus
from backends.train_heads.distilling import Teacher
from backends.train_heads.recipe import Recipe
from backends.train_heads.training import orders, start_from, state_at, train
from tests.support.shards import STATES, WIDTH, Said, corpus_of

VOCABULARY = 20
RECIPE = Recipe(depth=2, inner=16, vocabulary=VOCABULARY, steps=20, windows=2, rate=0.01, warm_up=3)

SEEN: list[Said] = [("chat", True, [(3 * number + place) % VOCABULARY for place in range(40)]) for number in range(5)]
UNSEEN: list[Said] = [("chat", False, [place % VOCABULARY for place in range(40)])]

Losses = dict[int, list[float]]


def teacher() -> Teacher:
    embedding = torch.randn(VOCABULARY, WIDTH, generator=torch.Generator().manual_seed(5))
    return Teacher(embedding, torch.arange(VOCABULARY))


def fresh(recipe: Recipe = RECIPE) -> dict[str, Tensor]:
    torch.manual_seed(recipe.seed)
    return KINDS[recipe.kind].fresh(WIDTH, recipe.depth, STATES - 1, recipe.inner)


def trained(
    state: Path,
    corpus: Corpus,
    recipe: Recipe = RECIPE,
    weights: dict[str, Tensor] | None = None,
    heard: Callable[[int], None] = lambda step: None,
) -> tuple[dict[str, Tensor], Losses]:
    weights, losses = weights or fresh(recipe), {}

    def told(step: int, each: list[float], _: float) -> None:
        losses[step] = each
        heard(step)

    train(weights, teacher(), corpus, recipe, state, told, save_every=5, tell_every=5)
    return weights, losses


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one.keys() | other.keys())


@pytest.mark.parametrize("kind", ["hydra", "medusa"])
def test_the_loss_of_every_head_falls(tmp_path: Path, kind: str) -> None:
    recipe = replace(RECIPE, kind=kind, steps=200, soft=0.0)
    _, losses = trained(tmp_path / "s", corpus_of(tmp_path / "c", SEEN), recipe)
    for first, last in zip(losses[5], losses[200], strict=True):
        assert last < 0.8 * first


def test_a_run_that_was_stopped_gives_exactly_what_an_uninterrupted_one_gives(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", SEEN)
    whole, _ = trained(tmp_path / "whole", corpus)

    def stop(step: int) -> None:
        if step == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "stopped", corpus, heard=stop)
    assert state_at(tmp_path / "stopped")["step"] == 10
    resumed, losses = trained(tmp_path / "stopped", corpus)
    assert min(losses) == 15
    assert same(resumed, whole)


def test_a_run_that_is_over_is_not_trained_further(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", SEEN)
    once, _ = trained(tmp_path / "s", corpus)
    again, losses = trained(tmp_path / "s", corpus)
    assert same(once, again)
    assert not losses


def test_the_seed_decides_the_result(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", SEEN)
    one, other = trained(tmp_path / "a", corpus)[0], trained(tmp_path / "b", corpus)[0]
    assert same(one, other)
    assert not same(one, trained(tmp_path / "d", corpus, replace(RECIPE, seed=1), fresh())[0])


def test_held_out_answers_change_nothing(tmp_path: Path) -> None:
    without = trained(tmp_path / "a", corpus_of(tmp_path / "c", SEEN))[0]
    beside = trained(tmp_path / "b", corpus_of(tmp_path / "d", SEEN, UNSEEN))[0]
    assert same(without, beside)


def test_a_state_of_another_recipe_or_other_answers_is_refused(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", SEEN)
    trained(tmp_path / "s", corpus)
    with pytest.raises(ValueError, match=r"other recipe; remove it .* --from"):
        trained(tmp_path / "s", corpus, replace(RECIPE, rate=0.02))
    with pytest.raises(ValueError, match="other positions"):
        trained(tmp_path / "s", corpus_of(tmp_path / "d", SEEN[:4]))


def damaged(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"something else"),
        lambda path: torch.save({"weights": {}}, path),
        lambda path: torch.save([1], path),
        lambda path: (torch.save({"weights": torch.ones(999)}, path), damaged(path)),
    ],
)
def test_a_file_that_is_no_state_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "s")
    with pytest.raises(ValueError, match="not a training run's state"):
        state_at(tmp_path / "s")


def test_answers_that_are_too_short_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="more than 2 tokens"):
        trained(tmp_path / "s", corpus_of(tmp_path / "c", [("chat", True, [1, 2])]))


def test_fewer_windows_than_a_step_asks_for_are_a_step_all_the_same(tmp_path: Path) -> None:
    _, losses = trained(tmp_path / "s", corpus_of(tmp_path / "c", SEEN[:1]), replace(RECIPE, windows=50))
    assert 20 in losses


def test_a_new_run_can_start_from_an_earlier_ones_state_exactly(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", SEEN)
    earlier, _ = trained(tmp_path / "s", corpus)
    weights = fresh()
    start_from(tmp_path / "s", weights)
    assert same(weights, earlier)
    more, _ = trained(tmp_path / "t", corpus_of(tmp_path / "d", SEEN, SEEN), weights=weights)
    assert not same(more, earlier)


def test_a_new_run_can_start_from_a_file_of_heads(tmp_path: Path) -> None:
    earlier, _ = trained(tmp_path / "s", corpus_of(tmp_path / "c", SEEN))
    kept = {name: weight.detach() for name, weight in earlier.items()}
    path = tmp_path / "heads.safetensors"
    base = sizes(layers=2, width=WIDTH, vocabulary=VOCABULARY)
    save(path, HeadsFile(kind="hydra", weights=kept, ids=torch.arange(3), taps=(0, 1), paths=[(0,)], base=base))
    weights = fresh()
    start_from(path, weights)
    for name, weight in weights.items():
        torch.testing.assert_close(weight, kept[name], atol=float(kept[name].abs().max()) / 254 + 1e-6, rtol=0)


@pytest.mark.parametrize("other", [{"depth": 3}, {"inner": 8}, {"kind": "medusa"}])
def test_weights_of_other_sizes_are_no_start(tmp_path: Path, other: dict[str, object]) -> None:
    trained(tmp_path / "s", corpus_of(tmp_path / "c", SEEN))
    with pytest.raises(ValueError, match="another kind, depth or width"):
        start_from(tmp_path / "s", fresh(replace(RECIPE, **other)))


def test_every_window_is_seen_once_an_epoch_but_for_an_uneven_rest() -> None:
    steps = list(islice(orders(7, 3, seed=0), 4))
    for epoch in (steps[:2], steps[2:]):
        seen = torch.cat(list(epoch)).tolist()
        assert len(set(seen)) == len(seen) == 6
    assert not torch.equal(torch.cat(steps[:2]), torch.cat(steps[2:]))
