"""Windows of answers."""

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from backends.train_heads.corpus import WINDOW, Corpus, frequent, own_positions
from tests.support.shards import corpus_of, written


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 90)), min_size=1, max_size=6), st.integers(1, 5))
def test_windows_cover_every_usable_position_once_and_never_cross_answers(
    answers: list[tuple[bool, int]], depth: int
) -> None:
    said = [("chat", seen, [number] * length) for number, (seen, length) in enumerate(answers)]
    with tempfile.TemporaryDirectory() as folder:
        if not any(length for _, length in answers):
            return
        corpus = corpus_of(Path(folder), said)
        for seen in (True, False):
            covered = 0
            for window in corpus.windows(depth, seen=seen):
                states, tokens, (count,) = corpus.read([window], depth)
                assert 0 < count <= WINDOW
                assert len(states) == len(tokens) == count + depth
                (number,) = set(tokens.tolist())  # one answer's
                assert answers[number][0] == seen
                covered += count
            assert covered == sum(max(0, length - depth) for its_seen, length in answers if its_seen == seen)


def test_windows_can_be_of_one_kind(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [("chat", False, [1] * 9), ("plan", False, [2] * 9)], [("plan", False, [3] * 9)])
    tokens = corpus.read(corpus.windows(2, seen=False, kind="plan"), 2)[1]
    assert sorted(set(tokens.tolist())) == [2, 3]


def test_only_answers_that_may_be_trained_on_are_counted(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [("chat", True, [1, 1, 2]), ("chat", False, [3, 3, 3])], [("plan", True, [2, 4])])
    assert corpus.counts(6).tolist() == [0, 2, 2, 0, 1, 0]
    assert (corpus.positions(seen=True), corpus.positions(seen=False)) == (5, 3)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.integers(1, 20))
def test_the_most_frequent_tokens_are_kept_in_ascending_order(counts: list[int], size: int) -> None:
    ids = frequent(torch.tensor(counts), size).tolist()
    wanted = sorted(range(len(counts)), key=lambda token: (-counts[token], token))[:size]
    assert ids == sorted(wanted)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(1, 4))
def test_own_positions_leave_out_what_follows_a_window(counts: list[int], depth: int) -> None:
    marks = [(number, place < count) for number, count in enumerate(counts) for place in range(count + depth)]
    assert own_positions(counts, depth).tolist() == [place for place, (_, own) in enumerate(marks) if own]


@pytest.mark.parametrize("left", [0, 3, 200])
def test_a_file_that_was_cut_is_named_with_what_to_do(tmp_path: Path, left: int) -> None:
    path = written(tmp_path / "answers.safetensors", [("chat", True, [1, 2, 3])])
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(ValueError, match=f"{path}: not a file of answers .* remove it"):
        Corpus([path])


def test_another_safetensors_file_is_no_file_of_answers(tmp_path: Path) -> None:
    save_file({"tokens": torch.zeros(1)}, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="not a file of answers"):
        Corpus([tmp_path / "x.safetensors"])
