"""The roster: what the sources report, with what admins changed on top."""

from router.discovery.roster import MOST_REMOVED, Roster
from tests.support.fleets import worker


def ids(roster: Roster) -> list[str]:
    return [each.id for each in roster.workers()]


def roster_of(*names: str) -> Roster:
    roster = Roster()
    roster.report("settings", tuple(map(worker, names)))
    return roster


def test_sources_are_joined_one_worker_an_id() -> None:
    roster = roster_of("a", "b")
    roster.report("other", (worker("b", weight=2.0), worker("c")))
    assert ids(roster) == ["a", "b", "c"]
    assert roster.workers()[1].weight == 2.0


def test_a_report_replaces_the_one_before_of_the_same_source() -> None:
    roster = roster_of("a", "b")
    roster.report("other", (worker("c"),))
    roster.report("settings", (worker("b"),))
    assert sorted(ids(roster)) == ["b", "c"]


def test_an_addition_joins_and_over_an_id_that_is_there_updates() -> None:
    roster = roster_of("a")
    roster.add(worker("b"))
    roster.add(worker("a", weight=3.0))
    assert {each.id: each.weight for each in roster.workers()} == {"a": 3.0, "b": 1.0}


def test_additions_and_removals_outlive_the_next_report() -> None:
    roster = roster_of("a", "b")
    roster.add(worker("c"))
    roster.remove("a")
    roster.report("settings", (worker("a"), worker("b"), worker("d")))
    assert sorted(ids(roster)) == ["b", "c", "d"]


def test_a_removal_holds_until_the_worker_is_added_again() -> None:
    roster = roster_of("a")
    roster.remove("a")
    assert ids(roster) == []
    roster.add(worker("a", weight=2.0))
    assert roster.workers() == (worker("a", weight=2.0),)


def test_what_was_added_and_removed_is_gone() -> None:
    roster = roster_of()
    roster.add(worker("a"))
    roster.remove("a")
    assert ids(roster) == []


def test_removing_the_unknown_changes_nothing() -> None:
    roster = roster_of("a")
    roster.remove("never-there")
    assert ids(roster) == ["a"]


def test_workers_that_come_and_go_are_not_remembered_for_ever_but_what_a_source_reports_stays_removed() -> None:
    roster = roster_of("a")
    roster.remove("a")
    for at in range(3 * MOST_REMOVED):
        roster.add(worker(f"goes-{at}"))
        roster.remove(f"goes-{at}")
    assert len(roster._removed) <= MOST_REMOVED
    assert ids(roster) == []
