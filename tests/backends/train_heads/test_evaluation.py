"""How good heads are, against the slow way to find out."""

from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
import torch

from backends.medusa.heads import HydraHeads, unrolled
from backends.medusa.tree import Tree, counted, expected_tokens
from backends.train_heads.corpus import Corpus, own_positions
from backends.train_heads.distilling import Teacher
from backends.train_heads.evaluation import GUESSES, Judged, judged, pooled, ranks
from tests.support.shards import STATES, WIDTH, Said, corpus_of

VOCABULARY, DEPTH = 24, 3
IDS = torch.tensor([token for token in range(VOCABULARY) if token % 5])


def heads() -> HydraHeads:
    torch.manual_seed(2)
    weights = HydraHeads.fresh(WIDTH, DEPTH, STATES - 1, 16)
    return HydraHeads({name: weight + 0.2 * torch.randn_like(weight) for name, weight in weights.items()})


def teacher(ids: torch.Tensor = IDS) -> Teacher:
    return Teacher(torch.randn(VOCABULARY, WIDTH, generator=torch.Generator().manual_seed(5)), ids)


def a_corpus(folder: Path) -> Corpus:
    def text(seed: int, length: int) -> list[int]:
        dice = torch.Generator().manual_seed(seed)
        return torch.randint(VOCABULARY, (length,), generator=dice).tolist()

    said: list[Said] = [("chat", number % 2 == 0, text(number, 20 + 9 * number)) for number in range(6)]
    return corpus_of(folder, said)


def test_a_rank_is_the_number_of_likelier_tokens(tmp_path: Path) -> None:
    corpus = a_corpus(tmp_path)
    batch = corpus.read(corpus.windows(DEPTH, seen=False), DEPTH)
    states, tokens, counts = batch
    found, at = ranks(heads(), teacher(), batch), own_positions(counts, DEPTH)
    before = torch.stack([teacher().embedding[tokens[at + k]] for k in range(DEPTH)], 1)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        guessed = unrolled(heads(), states[at].float(), before.float())
    inside = 0
    for k, state in enumerate(guessed):
        logits = (state.bfloat16() @ teacher().output.T).float()
        for row, rank, token in zip(logits, found[:, k].tolist(), tokens[at + k + 1].tolist(), strict=True):
            if token % 5 == 0:
                assert rank == -1  # no head can say it
                continue
            own = row[(token == IDS).nonzero().item()]
            likelier, as_likely = int((row > own).sum()), int((row == own).sum())
            if rank == -1:
                assert likelier + as_likely > GUESSES
            else:
                assert likelier <= rank < min(likelier + as_likely, GUESSES)
                inside += 1
    assert inside


def test_accuracies_are_shares_of_held_out_positions(tmp_path: Path) -> None:
    corpus = a_corpus(tmp_path)
    found = judged(heads(), teacher(), corpus, kind="chat")
    assert found is not None
    batch = corpus.read(corpus.windows(DEPTH, seen=False), DEPTH)
    every = ranks(heads(), teacher(), batch).tolist()
    assert found.positions == len(every) == sum(batch[2])
    for k, row in enumerate(found.accuracy):
        for top, share in zip((1, 3, 5), row, strict=True):
            assert share == pytest.approx(sum(0 <= each[k] < top for each in every) / len(every), abs=1e-4)


def test_the_expected_tokens_are_those_of_the_best_tree_of_its_size(tmp_path: Path) -> None:
    found = judged(heads(), teacher(), a_corpus(tmp_path), kind="chat")
    assert found is not None
    likely = [path for path, _ in found.paths.most_common(9)]
    for size in (2, 4):
        best = 0.0
        for paths in combinations(likely, size - 1):
            if all(len(path) == 1 or path[:-1] in paths for path in paths):
                best = max(best, expected_tokens(Tree(paths), found.paths, found.positions))
        assert found.expected[size] == pytest.approx(best, abs=1e-3)


def test_a_kind_without_answers_is_not_judged(tmp_path: Path) -> None:
    assert judged(heads(), teacher(), a_corpus(tmp_path), kind="agent") is None


def test_about_as_many_positions_as_asked_for_are_looked_at(tmp_path: Path) -> None:
    corpus = a_corpus(tmp_path)
    every = judged(heads(), teacher(), corpus, kind="chat")
    some = judged(heads(), teacher(), corpus, kind="chat", most=60)
    assert every is not None
    assert some is not None
    assert 0 < some.positions < every.positions


def test_heads_that_can_say_few_tokens_have_few_guesses(tmp_path: Path) -> None:
    found = judged(heads(), teacher(torch.tensor([1, 2, 3])), a_corpus(tmp_path), kind="chat")
    assert found is not None
    assert all(rank < 3 for path in found.paths for rank in path)


def counts_of(rows: list[list[int]], times: int = 1) -> Judged:
    paths = Counter({path: times * count for path, count in counted(torch.tensor(rows)).items()})
    return Judged(times * len(rows), [], paths, {})


def test_each_set_counts_the_same_in_the_pooled_tree_however_large() -> None:
    large, small = counts_of([[0, 0]] * 3 + [[1, -1]] * 2, times=1000), counts_of([[2, 0]] * 4 + [[0, -1]])
    assert pooled([large, small], 4) == [(0,), (2,), (2, 0)]


def test_every_beginning_of_the_pooled_paths_is_a_tree() -> None:
    dice = torch.Generator().manual_seed(0)
    sets = [counts_of(torch.randint(-1, 4, (50, 4), generator=dice).tolist()) for _ in range(3)]
    paths = pooled(sets, 64)
    for size in range(len(paths)):
        Tree(paths[:size])
