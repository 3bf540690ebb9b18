"""What is asked of a policy: with nothing known it is a request that any worker may get."""

import msgspec

from router.asks import Ask, Ranked
from router.types import Fingerprint, Key


def test_an_ask_begins_with_nobody_known_to_hold_it() -> None:
    ask = Ask(Fingerprint((), [], 0, 0.0), Key(0, 0, 0), {}, 0)
    assert (ask.held, ask.hashes, ask.lease, ask.turn) == ({}, [], None, 0)


def test_two_asks_share_nothing_that_can_change() -> None:
    one, other = (Ask(Fingerprint((), [], 0, 0.0), Key(0, 0, 0), {}, 0) for _ in range(2))
    one.hashes.append(1)
    assert other.hashes == []


def test_a_step_of_an_order_cannot_be_changed() -> None:
    step = Ranked("w", "home", 0.0, 1.0)
    try:
        step.cost = 2.0  # type: ignore[misc]
    except AttributeError:
        assert msgspec.structs.astuple(step) == ("w", "home", 0.0, 1.0)
    else:
        raise AssertionError("it was changed")
