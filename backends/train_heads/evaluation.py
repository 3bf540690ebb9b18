"""How good heads are on answers they were not trained on: accuracies, and which paths of guesses the text takes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from backends.medusa.drafting import best
from backends.medusa.heads import Heads, unrolled
from backends.medusa.tree import Path, chosen, counted, expected_tokens
from backends.train_heads.corpus import Corpus, own_positions
from backends.train_heads.distilling import Teacher

GUESSES = 8  # ranks that are looked at
TREE_SIZES = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Judged:
    """`accuracy` [K][3]: the share of positions at which the true token is among head k's first 1, 3 and 5 guesses,
    given the true tokens before; `paths`: how often the text took each path of guesses; `expected`: tokens a step with
    the best tree of each size."""

    positions: int
    accuracy: list[list[float]]
    paths: Counter[Path]
    expected: dict[int, float]


@torch.no_grad()
def ranks(heads: Heads, teacher: Teacher, batch: tuple[Tensor, Tensor, list[int]]) -> Tensor:
    """The rank of the true token among each head's guesses: [N, K], -1 for none of them."""
    states, tokens, counts = batch
    at = own_positions(counts, heads.depth)
    before = F.embedding(torch.stack([tokens[at + k] for k in range(heads.depth)], 1), teacher.embedding)
    found = []
    with torch.autocast("cpu", torch.bfloat16):
        for k, state in enumerate(unrolled(heads, states[at].float(), before.float())):
            _, places = best(F.linear(state.bfloat16(), teacher.output).float(), min(GUESSES, len(teacher.ids)))
            hits = teacher.ids[places] == tokens[at + k + 1, None]  # [N, GUESSES]
            found.append(torch.where(hits.any(1), hits.int().argmax(1), -1))
    return torch.stack(found, 1)


def judged(
    heads: Heads, teacher: Teacher, corpus: Corpus, *, kind: str, seen: bool = False, most: int = 12_000
) -> Judged | None:
    """On up to `most` positions of one kind of prompt; None where there is none."""
    windows = corpus.windows(heads.depth, seen=seen, kind=kind)
    sample = windows[:: max(1, sum(count for _, _, count in windows) // most)]
    if not sample:
        return None
    batches = (corpus.read(sample[start : start + 16], heads.depth) for start in range(0, len(sample), 16))
    every_rank = torch.cat([ranks(heads, teacher, batch) for batch in batches])
    total = len(every_rank)
    accuracy = [
        [round(float(((row >= 0) & (row < top)).float().mean()), 4) for top in (1, 3, 5)] for row in every_rank.T
    ]
    paths = counted(every_rank)
    expected = {size: round(expected_tokens(chosen(paths, size), paths, total), 3) for size in TREE_SIZES}
    return Judged(total, accuracy, paths, expected)


def pooled(found: Sequence[Judged], size: int) -> list[Path]:
    """The paths of the best tree over several sets, each set counting the same; the most valuable first."""
    shares: Counter[Path] = Counter()
    for judgement in found:
        for path, count in judgement.paths.items():
            shares[path] += round(1e6 * count / judgement.positions)
    order = sorted(shares.items(), key=lambda item: (-item[1], len(item[0]), item[0]))
    return [path for path, _ in order[: size - 1]]
