"""One tree of guesses from all sources."""

from math import nan

from hypothesis import given
from hypothesis import strategies as st

from backends.medusa.candidates import HEADS, LOOKUP, Candidates

Addition = tuple[int, int, float, int]
chances = st.floats(0, 1)
additions = st.lists(
    st.tuples(st.integers(0, 99), st.integers(0, 4), chances, st.sampled_from([HEADS, LOOKUP])), max_size=30
)


def filled(steps: list[Addition]) -> Candidates:
    found = Candidates.after(7)
    for place, token, score, source in steps:
        found.add(place % len(found), token, score, source)
    return found


def path_of(candidates: Candidates, node: int) -> tuple[int, ...]:
    path: list[int] = []
    while node > 0:
        path.insert(0, candidates.tokens[node])
        node = candidates.parents[node]
    return tuple(path)


@given(additions)
def test_whatever_is_added_siblings_differ_parents_come_first_and_scores_fall(steps: list[Addition]) -> None:
    found = filled(steps)
    for node in range(1, len(found)):
        parent = found.parents[node]
        assert parent < node
        assert found.scores[node] <= found.scores[parent]
        assert found.depths[node] == found.depths[parent] + 1
        assert found.children[parent][found.tokens[node]] == node
    assert len({path_of(found, node) for node in range(len(found))}) == len(found)
    assert sum(map(len, found.children)) == len(found) - 1


@given(st.lists(st.tuples(st.integers(0, 4), chances), min_size=1, max_size=12), st.data())
def test_of_equal_guesses_the_highest_score_stays_in_whatever_order_they_come(
    guesses: list[tuple[int, float]], data: st.DataObject
) -> None:
    mixed = data.draw(st.permutations(guesses))

    def scores(order: list[tuple[int, float]]) -> dict[int, float]:
        found = filled([(0, token, score, HEADS) for token, score in order])
        return {found.tokens[node]: found.scores[node] for node in range(1, len(found))}

    assert scores(guesses) == scores(mixed)
    assert all(scores(guesses)[token] >= score for token, score in guesses)


def test_the_source_of_the_higher_score_stays() -> None:
    found = filled([(0, 3, 0.2, HEADS), (0, 3, 0.5, LOOKUP), (0, 3, 0.4, HEADS)])
    assert (found.tokens, found.scores, found.sources) == ([7, 3], [1.0, 0.5], [HEADS, LOOKUP])


def test_a_tree_leaves_out_what_was_not_drafted_or_is_no_number_and_all_behind_it() -> None:
    found = Candidates.after(7)
    found.add_tree([-1, 0, 0, 1, 2, 2], [7, 1, 2, 3, 4, 5], [1.0, 0.0, 0.6, 0.5, nan, 0.3])
    assert (found.tokens, found.parents) == ([7, 2, 5], [-1, 0, 1])


def test_a_chain_gets_less_probable_with_every_token() -> None:
    found = Candidates.after(7)
    found.add_chain([1, 2, 3], 0.5, 0.5)
    assert (found.tokens, found.parents, found.scores) == ([7, 1, 2, 3], [-1, 0, 1, 2], [1.0, 0.5, 0.25, 0.125])


def test_a_chain_that_begins_as_the_heads_guess_branches_off_where_they_part() -> None:
    found = Candidates.after(7)
    found.add_tree([-1, 0, 1], [7, 1, 2], [1.0, 0.9, 0.8])
    found.add_chain([1, 5], 0.5, 0.5)
    assert (found.tokens, found.parents) == ([7, 1, 2, 5], [-1, 0, 1, 1])
    assert (found.scores, found.sources) == ([1.0, 0.9, 0.8, 0.25], [HEADS, HEADS, HEADS, LOOKUP])


@given(additions, st.sets(st.integers(0, 30)))
def test_a_subtree_keeps_the_nodes_in_their_order(steps: list[Addition], wanted: set[int]) -> None:
    whole = filled(steps)
    kept = [0]
    for node in range(1, len(whole)):
        if node in wanted and whole.parents[node] in kept:
            kept.append(node)
    part = whole.subtree(kept)
    assert [path_of(part, node) for node in range(len(part))] == [path_of(whole, node) for node in kept]
    for name in ("tokens", "depths", "scores", "sources"):
        assert getattr(part, name) == [getattr(whole, name)[node] for node in kept]
