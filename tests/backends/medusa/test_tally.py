"""What drafting gained, counted."""

from backends.medusa.candidates import Candidates
from backends.medusa.tally import Tally


def tried() -> Candidates:
    found = Candidates.after(0)
    found.add_tree([-1, 0, 0, 1], [0, 1, 2, 3], [1.0, 0.6, 0.3, 0.5])
    found.add_chain([2, 9], 0.4, 0.5)
    return found


def test_nodes_count_as_tried_where_the_one_before_was_right() -> None:
    tally = Tally()
    tally.accepted(4, tried(), [0, 1])
    assert tally.tried == {("heads", 1): 1, ("lookup", 1): 1, ("heads", 2): 1}
    assert {key: count for key, count in tally.right.items() if count} == {("heads", 1): 1}
    assert tally.row_steps == {4: 1}


def test_guesses_count_whether_or_not_they_could_be_right() -> None:
    tally = Tally()
    tally.accepted(4, tried(), [0, 1])
    tally.accepted(4, Candidates.after(0), [0])
    assert (tally.guessed, tally.guesses) == (1, 4)


def test_steps_are_summed_by_rows_and_drafts_apart() -> None:
    tally = Tally()
    tally.step(2, nodes=6, tokens=3, drafted=0.25, seconds=1.0)
    tally.step(2, nodes=2, tokens=2, drafted=0.0, seconds=0.5)
    tally.step(3, nodes=3, tokens=3, drafted=0.0, seconds=2.0)
    assert (tally.steps, tally.nodes, tally.tokens) == ({2: 2, 3: 1}, {2: 8, 3: 3}, {2: 5, 3: 3})
    assert (tally.seconds, tally.drafts, tally.draft_seconds) == ({2: 1.5, 3: 2.0}, {2: 1}, {2: 0.25})


def test_a_copy_stays_as_it_is() -> None:
    tally = Tally()
    tally.accepted(1, tried(), [0, 1])
    before = tally.copy()
    tally.accepted(1, tried(), [0, 1])
    tally.step(1, 2, 3, 0.1, 0.2)
    assert (before.guesses, before.right[("heads", 1)], before.steps, before.seconds) == (4, 1, {}, {})
