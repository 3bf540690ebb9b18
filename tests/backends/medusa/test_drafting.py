"""Running the heads: the guesses are the likeliest ones after each path, with their probabilities."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from backends.medusa.drafting import BLOCK, Drafter, best
from backends.medusa.heads import KINDS, unrolled
from backends.medusa.tree import Path, Tree

WIDTH, DEPTH, TAPS, VOCABULARY = 16, 3, 2, 61
KIND = pytest.mark.parametrize("kind", ["medusa", "hydra"])
PATHS = [(0,), (1,), (2,), (0, 0), (0, 1), (2, 0), (0, 1, 0), (2, 0, 0), (2, 0, 3)]
IDS = torch.arange(1, VOCABULARY, 2)  # the heads can say odd tokens only


def numbers(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def weights_of(kind: str) -> dict[str, Tensor]:
    """Random ones, of numbers that bfloat16 holds exactly."""
    fresh = KINDS[kind].fresh(WIDTH, DEPTH, TAPS, 8)
    return {
        name: weight if weight.ndim == 0 else numbers(*weight.shape, seed=index).mul(0.1).bfloat16().float()
        for index, (name, weight) in enumerate(fresh.items())
    }


def drafter_of(kind: str, paths: list[Path] = PATHS) -> Drafter:
    return Drafter(kind, weights_of(kind), numbers(VOCABULARY, WIDTH, seed=9).bfloat16(), IDS, Tree(paths))


def states_of(rows: int) -> Tensor:
    return numbers(rows, 1 + TAPS, WIDTH, seed=5).bfloat16().float()


@KIND
def test_a_node_is_the_guess_of_its_rank_after_its_parents_tokens_with_the_product_of_probabilities(kind: str) -> None:
    """Against the heads in float32 with the same weights, each path for itself."""
    drafter, states, roots = drafter_of(kind), states_of(3), [4, 7, 60]
    draft = drafter.draft(states, roots)
    embedding = numbers(VOCABULARY, WIDTH, seed=9).bfloat16().float()
    heads = KINDS[kind](weights_of(kind))
    for row, root in enumerate(roots):
        assert (draft.tokens[row][0], draft.scores[row][0]) == (root, 1.0)
        for node, path in enumerate(drafter.tree.paths):
            if not path:
                continue
            line = [row_token(draft.tokens[row], drafter.tree, path[:size]) for size in range(len(path))]
            said = torch.tensor([*line, *[0] * (DEPTH - len(line))])
            logits = unrolled(heads, states[row : row + 1], F.embedding(said, embedding)[None])[len(path) - 1]
            chance = (logits @ embedding[IDS].T).softmax(-1)[0]
            token = draft.tokens[row][node]
            own = float(chance[(token - 1) // 2])
            assert token in IDS
            assert own == pytest.approx(float(chance.sort(descending=True).values[path[-1]]), rel=0.1)
            parent = draft.scores[row][drafter.tree.parents[node]]
            assert draft.scores[row][node] == pytest.approx(own * parent, rel=0.1)


def row_token(tokens: list[int], tree: Tree, path: Path) -> int:
    return tokens[tree.paths.index(path)]


@KIND
def test_siblings_are_different_tokens(kind: str) -> None:
    drafter = drafter_of(kind)
    for tokens in drafter.draft(states_of(3), [4, 7, 60]).tokens:
        nodes = list(zip(drafter.tree.parents, tokens, strict=True))
        assert len(set(nodes)) == len(nodes)


@KIND
def test_a_row_s_draft_does_not_depend_on_the_other_rows(kind: str) -> None:
    drafter, states, roots = drafter_of(kind), states_of(4), [4, 7, 60, 0]
    together = drafter.draft(states, roots)
    for row, root in enumerate(roots):
        alone = drafter.draft(states[row : row + 1], [root])
        assert alone.tokens[0] == together.tokens[row]
        assert alone.scores[0] == pytest.approx(together.scores[row], rel=0.02)


@KIND
@pytest.mark.parametrize("floor", [0.005, 0.05, 0.3, 1.0])
def test_a_node_that_is_not_above_the_floor_is_not_drafted_further(kind: str, floor: float) -> None:
    drafter, states, roots = drafter_of(kind), states_of(3), [4, 7, 60]
    whole, cut = drafter.draft(states, roots), drafter.draft(states, roots, floor)
    tree = drafter.tree
    for row in range(3):
        for node in range(1, len(tree)):
            parent = tree.parents[node]
            if cut.scores[row][parent] > floor:
                assert cut.tokens[row][node] == whole.tokens[row][node]
                assert cut.scores[row][node] == pytest.approx(whole.scores[row][node], rel=0.05)
            else:
                assert cut.scores[row][node] == 0


@KIND
def test_it_ends_where_too_little_hangs_on_a_further_level(kind: str) -> None:
    """On the roots hangs 1 a row; on each further level what the nodes to continue have together."""
    drafter, states, roots = drafter_of(kind), states_of(3), [4, 7, 60]
    whole = drafter.draft(states, roots)
    hangs = [sum(row[node] for row in whole.scores for node in level) for level in drafter.tree.levels]
    assert whole.levels == len(hangs) > 1
    for levels in range(len(hangs) + 1):
        worth = hangs[levels] * 1.001 + 1e-9 if levels < len(hangs) else 0.0
        cut = drafter.draft(states, roots, worth=worth)
        assert cut.levels == next((depth for depth, sum_ in enumerate(hangs) if sum_ < worth), len(hangs))
        assert all(
            (score == 0) == (depth > cut.levels)
            for score, depth in zip(cut.scores[0], drafter.tree.depths, strict=True)
        )


@KIND
def test_a_tree_of_the_root_alone_is_drafted_as_it_is(kind: str) -> None:
    draft = drafter_of(kind, []).draft(states_of(2), [3, 4])
    assert (draft.tokens, draft.scores) == ([[3], [4]], [[1.0], [1.0]])


def test_heads_that_say_no_numbers_are_not_believed_and_harm_nobody() -> None:
    drafter = drafter_of("medusa")
    draft = drafter.draft(torch.full((1, 1 + TAPS, WIDTH), float("nan")), [4])
    assert not any(score > 0 for score in draft.scores[0][1:])
    assert all(0 <= token < VOCABULARY for token in draft.tokens[0])


def test_a_tree_that_the_heads_cannot_fill_is_refused() -> None:
    with pytest.raises(ValueError, match="4 deep, and there are 3 heads"):
        drafter_of("medusa", [(0,), (0, 0), (0, 0, 0), (0, 0, 0, 0)])
    with pytest.raises(ValueError, match="more guesses than the 30 tokens"):
        drafter_of("medusa", [(30,)])


@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 8), st.booleans(), st.integers(0, 2**31))
def test_best_is_topk(rows: int, blocks: int, count: int, ties: bool, seed: int) -> None:
    size = max(count, blocks * BLOCK if seed % 3 else blocks * 50)
    logits = numbers(rows, size, seed=seed)
    logits = logits.round() if ties else logits
    values, places = best(logits, count)
    assert torch.equal(values, logits.topk(count, -1).values)
    assert torch.equal(logits.gather(1, places), values)
    assert all(len(set(row)) == count for row in places.tolist())
    if not ties:
        assert torch.equal(places, logits.topk(count, -1).indices)
