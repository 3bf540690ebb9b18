"""Policies of a replay, by name and with options."""

from random import Random

import pytest

from router.contracts import PolicyTools
from router.layers import SettingsError
from router.replay_policies import USUAL, entrants, names
from tests.support.fleets import ring_of


def faults(*specs: str) -> list[str]:
    with pytest.raises(SettingsError) as wrong:
        entrants(list(specs))
    return wrong.value.faults


def built(spec: str) -> object:
    (entrant,) = entrants([spec])
    assert entrant.make is not None
    return entrant.make(PolicyTools(ring_of(["w0"]), Random(1)))


def test_all_that_there_are_are_known_by_their_names() -> None:
    assert {*USUAL, "bounded_requests", "power_of_two"} <= set(names())
    assert [entrant.label for entrant in entrants(names())] == names()


def test_each_is_there_once_in_the_order_given() -> None:
    assert [each.label for each in entrants(["random", "reference", "random"])] == ["random", "reference"]


def test_options_come_after_a_colon() -> None:
    weights = built("prefix_cost:factor=2,hot_factor=0.25").weights  # type: ignore[attr-defined]
    assert (weights.factor, weights.hot_factor) == (2.0, 0.25)
    assert built("bounded_requests:bound=2").options.bound == 2.0  # type: ignore[attr-defined]


def test_a_policy_may_meet_itself() -> None:
    assert len(entrants(["prefix_cost", "prefix_cost:factor=2"])) == 2


def test_the_reference_has_its_beta() -> None:
    usual, other = entrants(["reference", "reference:beta=4"])
    assert (usual.make, usual.reference().beta, other.reference().beta) == (None, 2.0, 4.0)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("nearest", "--policy nearest: 'nearest' is no policy"),
        ("prefix_cost:factor", "--policy prefix_cost:factor: expected option=value"),
        ("prefix_cost:factor=many", "factor: Input should be a valid number"),
        ("prefix_cost:colour=red", "colour: there is no such option"),
        ("reference:beta=-1", "beta: Input should be greater than or equal to 0"),
        ("reference:gamma=1", "gamma: there is no such option"),
        ("bounded_requests:bound=0.5", "bound: Input should be greater than or equal to 1"),
    ],
)
def test_what_is_wrong_is_said(spec: str, expected: str) -> None:
    assert expected in faults(spec)[0]


def test_an_unknown_name_is_answered_with_all_known_ones() -> None:
    assert all(name in faults("nearest")[0] for name in names())


def test_all_faults_are_told_together() -> None:
    assert len(faults("nearest", "prefix_cost:colour=red,factor=x", "random")) == 3
