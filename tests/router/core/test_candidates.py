"""A list of workers, and what is known of them together."""

from router.core.candidates import Candidates, by_name, sums_of_weights
from tests.support.fleets import Look, fleet_of, worker


def test_candidates_are_a_list_like_any_other() -> None:
    fleet = fleet_of(3)
    seats = list(fleet.seats.values())
    candidates = Candidates(seats)
    assert candidates == seats
    assert candidates[::-1] == seats[::-1]
    assert Candidates() == []
    assert candidates.standing.by_id == fleet.seats


def test_workers_are_found_by_name_in_any_sequence() -> None:
    fleet = fleet_of(2)
    looks = [Look("a"), Look("b")]
    assert by_name(fleet.candidates(None)) == fleet.seats
    assert by_name(looks) == {"a": looks[0], "b": looks[1]}


def test_weights_are_summed_up_in_any_sequence() -> None:
    fleet = fleet_of([worker("a", weight=2.0), worker("b", weight=0.5)])
    assert sums_of_weights(fleet.candidates(None)) == [2.0, 2.5]
    assert sums_of_weights([Look("a"), Look("b", weight=3.0)]) == [1.0, 4.0]
