"""The plug shapes stand on one page, each with its law in prose, and the house's own objects fit them."""

import inspect
from random import Random

import pytest

from router import contracts
from router.contracts import Ask, Policy, PolicyTools
from router.core.ring import Ring
from tests.support.fleets import fleet_of

SHAPES = [
    shape for _, shape in inspect.getmembers(contracts, inspect.isclass)
    if shape.__module__ == contracts.__name__ and getattr(shape, "_is_protocol", False)
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_states_its_law(shape: type) -> None:
    assert inspect.getdoc(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_has_a_body(shape: type) -> None:
    """A plug shape is a promise; code in it would be inherited by nobody."""
    for name, member in vars(shape).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            source = inspect.getsource(member)
            assert source.rstrip().endswith(("...", '"""')), f"{shape.__name__}.{name}"


def test_a_policy_has_one_required_method() -> None:
    assert [name for name in vars(Policy) if not name.startswith("_")] == ["order"]


def test_a_seat_is_a_candidate() -> None:
    seat = next(iter(fleet_of(1).seats.values()))
    assert (seat.id, seat.weight, seat.speed, seat.wait(0.0)) == ("w0", 1.0, 1.0, 0.0)
    assert (seat.load.in_flight, seat.load.elsewhere, seat.load.traffic, seat.load.pace) == (0, 0, 0.0, None)


def test_the_ring_is_a_ring() -> None:
    for name in ("walk", "home", "nearest"):
        assert callable(getattr(Ring(), name))


def test_what_a_policy_is_asked_names_no_clock_and_no_http() -> None:
    fields = set(Ask.__slots__)
    assert "prefix" in fields
    assert not {"now", "headers", "path", "status"} & fields


def test_policies_are_built_with_a_ring_and_dice() -> None:
    tools = PolicyTools(Ring(), Random(1))
    assert tools._fields == ("ring", "random", "slo")
    assert tools.slo is None
