"""The model's own answers, many at a time, and the files they are kept in."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from backends.train_heads import answers
from backends.train_heads.answers import Answer, Answering, Asked, write_shard, write_shards
from tests.support.llamas import tiny_llama
from tests.support.plain_decoding import computed, greedy

MOST = 12
MODEL = tiny_llama(taps=(0, 1))
PROMPTS = [[(7 * number + place * place) % 97 for place in range(3 + number % 5)] for number in range(11)]


def answered(seats: int, end: int = -1) -> list[Answer]:
    with torch.no_grad():
        longest = max(map(len, PROMPTS))
        answering = Answering(MODEL, seats, longest, MOST, end)
        return list(answering.run([Asked("chat", True, prompt) for prompt in PROMPTS]))


def an_end() -> int:
    """A token that ends some answers early, and not all."""
    said = [greedy(MODEL, prompt, MOST) for prompt in PROMPTS]
    return next(token for token in range(97) if 2 <= sum(token in text[:-1] for text in said) < len(said))


@pytest.mark.parametrize("seats", [1, 3, 16])
def test_answers_are_what_plain_decoding_says_though_seats_are_used_again(seats: int) -> None:
    end = an_end()
    found = answered(seats, end)
    assert len(found) == len(PROMPTS)
    assert len({len(answer.tokens) for answer in found}) > 1
    for answer in found:
        assert answer.tokens == greedy(MODEL, answer.asked.ids, MOST, {end})


def test_every_prompt_is_answered_once() -> None:
    assert sorted(answer.asked.ids for answer in answered(3)) == sorted(PROMPTS)


def test_the_states_are_those_that_predicted_the_tokens() -> None:
    for answer in answered(3):
        ids = answer.asked.ids
        wanted = computed(MODEL, [*ids, *answer.tokens]).states[len(ids) - 1 : -1]
        torch.testing.assert_close(torch.stack(answer.states), wanted, atol=1e-4, rtol=1e-4)


def test_a_shard_has_every_answer_with_its_kind(tmp_path: Path) -> None:
    found = answered(3)
    found[0].asked.kind, found[0].asked.seen = "plan", False
    write_shard(tmp_path / "one.safetensors", found)
    with safe_open(tmp_path / "one.safetensors", "pt") as file:
        starts = file.get_tensor("starts").tolist()
        tokens, states = file.get_tensor("tokens"), file.get_tensor("states")
        said = file.metadata()
    assert [tokens[a:b].tolist() for a, b in pairwise(starts)] == [each.tokens for each in found]
    assert torch.equal(states, torch.cat([torch.stack(each.states) for each in found]).bfloat16())
    assert said["kinds"].count('"plan"') == said["seen"].count("false") == 1


def test_a_shard_is_complete_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(_: object, part: Path, __: object) -> None:
        part.write_bytes(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(answers, "save_file", stopped)
    path = tmp_path / "one.safetensors"
    with pytest.raises(KeyboardInterrupt):
        write_shard(path, answered(3))
    assert not path.exists()
    monkeypatch.undo()
    write_shard(path, answered(3))
    assert [each.name for each in tmp_path.iterdir()] == ["one.safetensors"]


def test_shards_that_are_there_are_left_as_they_are(tmp_path: Path) -> None:
    asked = [Asked("chat", True, prompt) for prompt in PROMPTS]
    shards = {tmp_path / "a.safetensors": asked[:4], tmp_path / "b.safetensors": asked[4:6]}
    (tmp_path / "a.safetensors").write_bytes(b"from an earlier run")
    told: list[tuple[int, int]] = []
    with torch.no_grad():
        write_shards(Answering(MODEL, 2, 8, MOST, -1), shards, lambda *each: told.append(each))
    assert (tmp_path / "a.safetensors").read_bytes() == b"from an earlier run"
    assert (tmp_path / "b.safetensors").stat().st_size > 0
    assert told == [(4, 0), (5, MOST), (6, 2 * MOST)]
