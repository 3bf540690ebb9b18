"""What the heads learn from: the model's own answers, in windows of consecutive positions."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

WINDOW = 32  # consecutive positions that are learned from together, so that their teachers are computed once

Window = tuple[int, int, int]  # shard, start, positions


class Corpus:
    """Answers in shards, mapped from disk. A window never crosses from one answer into another. Raises ValueError for a
    file that is no such shard."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.tokens: list[Tensor] = []
        self.states: list[Tensor] = []
        self.answers: list[tuple[str, bool, int, int, int]] = []  # kind, seen, shard, start, length
        for index, path in enumerate(paths):
            try:
                with safe_open(path, "pt") as file:
                    self.tokens.append(file.get_tensor("tokens").long())
                    self.states.append(file.get_tensor("states"))
                    starts, said = file.get_tensor("starts").tolist(), file.metadata()
                kinds, seen = json.loads(said["kinds"]), json.loads(said["seen"])
            except (SafetensorError, KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path}: not a file of answers ({error}); remove it, and it is made anew") from None
            rows = zip(kinds, seen, starts, starts[1:], strict=False)
            self.answers += [(kind, its, index, start, end - start) for kind, its, start, end in rows]

    def positions(self, *, seen: bool) -> int:
        """The tokens of all answers that may be trained on, or may not."""
        return sum(length for _, its_seen, _, _, length in self.answers if its_seen == seen)

    def counts(self, vocabulary: int) -> Tensor:
        """How often each token stands in the answers that may be trained on: [V]."""
        total = torch.zeros(vocabulary, dtype=torch.int64)
        for _, seen, shard, start, length in self.answers:
            if seen:
                total += torch.bincount(self.tokens[shard][start : start + length], minlength=vocabulary)
        return total

    def windows(self, depth: int, *, seen: bool, kind: str | None = None) -> list[Window]:
        """Every window with `depth` more tokens after each of its positions."""
        found = []
        for its_kind, its_seen, shard, start, length in self.answers:
            if its_seen != seen or (kind is not None and its_kind != kind):
                continue
            usable = length - depth
            found += [(shard, start + at, min(WINDOW, usable - at)) for at in range(0, usable, WINDOW)]
        return found

    def read(self, windows: Sequence[Window], depth: int) -> tuple[Tensor, Tensor, list[int]]:
        """States [M, S, D] and tokens [M] of the windows, each with `depth` positions more; and their positions."""
        spans = [(shard, start, start + count + depth) for shard, start, count in windows]
        states = torch.cat([self.states[shard][start:end] for shard, start, end in spans])
        tokens = torch.cat([self.tokens[shard][start:end] for shard, start, end in spans])
        return states, tokens, [count for _, _, count in windows]


def frequent(counts: Tensor, size: int) -> Tensor:
    """The ids that the heads can say: the most frequent, then the lowest. [size], ascending."""
    order = (counts.double() - torch.arange(len(counts)).double() / len(counts)).argsort(descending=True)
    return order[:size].sort().values


def own_positions(counts: Sequence[int], depth: int) -> Tensor:
    """Where each window's own positions lie in what `Corpus.read` returns: [N]."""
    found, at = [], 0
    for count in counts:
        found.append(torch.arange(at, at + count))
        at += count + depth
    return torch.cat(found)
