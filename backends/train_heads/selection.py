"""Which prompts are asked, and in which shards: the same for the same prompts and seed, on every machine."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from backends.train_heads.answers import Asked
from backends.train_heads.prompts import Prompt


@dataclass(frozen=True, slots=True)
class Limits:
    """How many prompts of each kind are taken: to train on, and to judge on."""

    train: int
    judge: int


def selected(prompts: Iterable[Prompt], limits: Limits, seed: int) -> list[Prompt]:
    """Each kind in a random order of its own, so that any beginning is a fair sample, and more prompts of one kind
    change nothing for the others."""
    kinds: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        kinds.setdefault(prompt.kind, []).append(prompt)
    found = []
    for kind, group in kinds.items():
        random.Random(f"{seed}:{kind}").shuffle(group)  # noqa: S311  no secret
        room = {True: limits.train, False: limits.judge}
        for prompt in group:
            room[prompt.seen] -= 1
            if room[prompt.seen] >= 0:
                found.append(prompt)
    return found


def in_shards(prompts: Sequence[Asked], size: int) -> list[list[Asked]]:
    """Shards of one kind, the longest prompts first, since seats side by side wait for the longest sequence. The kinds
    take turns in proportion, so that any beginning has its share of each."""
    kinds: dict[str, list[Asked]] = {}
    for asked in prompts:
        kinds.setdefault(asked.kind, []).append(asked)
    placed = [
        (start / len(group), kind, sorted(group[start : start + size], key=lambda asked: -len(asked.ids)))
        for kind, group in kinds.items()
        for start in range(0, len(group), size)
    ]
    return [shard for _, _, shard in sorted(placed, key=lambda item: item[:2])]


def name_of(shard: Sequence[Asked], model: str, most_tokens: int) -> str:
    """A file name that says what was asked of whom: answers are never taken for those to other prompts."""
    digest = sha256(f"{model} {most_tokens}".encode())
    for asked in shard:
        digest.update(f"\n{asked.kind} {asked.seen} {asked.ids}".encode())
    return f"answers-{digest.hexdigest()[:16]}.safetensors"
