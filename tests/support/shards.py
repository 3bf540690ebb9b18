"""Files of answers for the tests of what learns from them: tokens as given, states of random numbers."""

from collections.abc import Sequence
from pathlib import Path

import torch

from backends.train_heads.answers import Answer, Asked, write_shard
from backends.train_heads.corpus import Corpus

WIDTH, STATES = 8, 3

Said = tuple[str, bool, Sequence[int]]  # kind, seen, tokens


def answer_of(kind: str, seen: bool, tokens: Sequence[int], dice: torch.Generator) -> Answer:
    states = torch.randn(len(tokens), STATES, WIDTH, generator=dice)
    return Answer(Asked(kind, seen, [1, 2]), list(tokens), list(states))


def written(path: Path, said: Sequence[Said], seed: int = 0) -> Path:
    dice = torch.Generator().manual_seed(seed)
    write_shard(path, [answer_of(kind, seen, tokens, dice) for kind, seen, tokens in said])
    return path


def corpus_of(folder: Path, *shards: Sequence[Said]) -> Corpus:
    folder.mkdir(parents=True, exist_ok=True)
    return Corpus([written(folder / f"{number}.safetensors", said, number) for number, said in enumerate(shards)])
