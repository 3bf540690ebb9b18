"""What is compared."""

from backends.bench_decoding.modes import BUDGET, MODES, PLAIN
from backends.medusa.batch import Settings


def test_plain_drafts_nothing() -> None:
    plain = MODES[PLAIN]
    assert (plain.heads, plain.look, plain.whole) == (None, False, 0)


def test_every_other_mode_drafts_something_and_no_two_are_the_same() -> None:
    others = [mode for name, mode in MODES.items() if name != PLAIN]
    assert all(mode.heads is not None or mode.look for mode in others)
    assert len({(mode.heads, mode.look, mode.whole) for mode in others}) == len(others)


def test_the_budget_is_the_workers() -> None:
    assert Settings().most_nodes == BUDGET
    assert MODES["hydra"].most_nodes(16) == BUDGET


def test_a_fixed_tree_has_room_for_every_row() -> None:
    assert MODES["hydra-tree-8"].most_nodes(16) == 8 * 16
