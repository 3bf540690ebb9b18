"""How many nodes a step verifies, and whose: one budget over all rows, spent where probability per second is best.

Every node of every row is a candidate with the probability that its row's text goes through it. A step that keeps a set
of nodes yields one token a row for certain and as many more as the probabilities say; it takes as long as the cost
model says for so many tokens. The best set is a prefix of all candidates in order of probability, since cost knows only
how many there are; so all prefixes are tried.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backends.medusa.candidates import Candidates


@dataclass(frozen=True, slots=True)
class Choice:
    """`kept`: each row's nodes, ascending, root first. `tokens`: what the step is expected to yield; `rate`: tokens a
    second, the draft's time counted; `plain_rate`: the same for a step without any node but the roots, and no draft."""

    kept: list[list[int]]
    tokens: float
    rate: float
    plain_rate: float


def share(rows: Sequence[Candidates], cost: Callable[[int], float], *, spent: float = 0.0, most: int = 64) -> Choice:
    """The nodes that this step should verify.

    `cost(n)`: seconds of a step with n nodes over all rows, each row's root among them; `spent`: seconds that drafting
    took already. At most `most` nodes, roots among them, but every root.
    """
    order = ordered(rows)
    tokens = float(len(rows))
    plain_rate = tokens / cost(len(rows))
    best, best_tokens, count = tokens / (spent + cost(len(rows))), tokens, 0
    for taken, (score, *_) in enumerate(order[: max(0, most - len(rows))], 1):
        tokens -= score
        rate = tokens / (spent + cost(len(rows) + taken))
        if rate > best:
            best, best_tokens, count = rate, tokens, taken
    return Choice(kept(rows, order[:count]), best_tokens, best, plain_rate)


def everything(rows: Sequence[Candidates], most: int = 64) -> Choice:
    """Every node, whatever it costs, the most probable ones if they are more than `most`. Rates are not known: 0."""
    order = ordered(rows)[: max(0, most - len(rows))]
    return Choice(kept(rows, order), len(rows) - sum(score for score, *_ in order), 0.0, 0.0)


def ordered(rows: Sequence[Candidates]) -> list[tuple[float, int, int, int]]:
    """Every node but the roots, the most probable first: (its score, negative; depth; row; node)."""
    return sorted(
        (-row.scores[node], row.depths[node], index, node)
        for index, row in enumerate(rows)
        for node in range(1, len(row))
    )


def kept(rows: Sequence[Candidates], order: Sequence[tuple[float, int, int, int]]) -> list[list[int]]:
    """By row, its root and its nodes of `order`."""
    found = [[0] for _ in rows]
    for _, _, index, node in order:
        found[index].append(node)
    return [sorted(nodes) for nodes in found]
