"""The policy's order, and the first in it that fits."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from router.contracts import Ask, Ranked
from router.core.choose import Choice, choose
from router.core.easing import HandOver, SlowStart
from router.core.fleet import Fleet
from router.core.health import PROBE_OK, REQUEST_FAILED
from router.types import Reason
from tests.support.fleets import ask_of, fleet_of, worker

ASK = ask_of(b"a prompt long enough for a rung or two, " * 10)
NOTHING = ask_of(b"")


class InOrder:
    """Wants the workers as they were named to it, and counts how many were asked for."""

    def __init__(self, *names: str, reason: Reason = Reason.HOME) -> None:
        self.names = names
        self.reason = reason
        self.asked = 0

    def order(self, ask: Ask, candidates: Sequence[Any], now: float) -> Iterator[Ranked]:
        for name in self.names:
            self.asked += 1
            yield Ranked(name, self.reason, 7.0, 0.0)


def first(fleet: Fleet, policy: InOrder, ask: Ask = ASK, tried: Sequence[str] = (), now: float = 0.0) -> Choice | None:
    return choose(policy, ask, fleet.candidates(None), fleet.seats, tried, now)


def chosen(choice: Choice | None) -> tuple[str, Reason, tuple[str, ...]]:
    assert choice is not None
    return choice.seat.id, choice.reason, choice.passed


def test_the_most_wanted_worker_is_chosen_with_the_policy_s_reason_and_expectation() -> None:
    policy = InOrder("w1", "w0", reason=Reason.WARM)
    choice = first(fleet_of(2), policy)
    assert chosen(choice) == ("w1", Reason.WARM, ())
    assert choice is not None
    assert choice.expected == 7.0


def test_no_more_is_asked_of_a_policy_than_needed() -> None:
    policy = InOrder("w0", "w1", "w2")
    first(fleet_of(3), policy)
    assert policy.asked == 1


def test_a_worker_that_was_tried_is_not_tried_again() -> None:
    policy = InOrder("w0", "w1", "w2")
    assert chosen(first(fleet_of(3), policy, tried=("w0",))) == ("w1", Reason.RETRY, ())
    assert chosen(first(fleet_of(3), policy, tried=("w1", "w0"))) == ("w2", Reason.RETRY, ())
    assert first(fleet_of(3), policy, tried=("w0", "w1", "w2")) is None


def test_a_full_worker_is_passed_over_and_named() -> None:
    fleet = fleet_of([worker("w0", max_in_flight=1), worker("w1")])
    fleet.seats["w0"].load.charge(1.0, 0.0, streaming=True)
    assert chosen(first(fleet, InOrder("w0", "w1"))) == ("w1", Reason.SPILL, ("w0",))


def test_a_worker_is_full_at_its_limit_and_not_before() -> None:
    fleet = fleet_of([worker("w0", max_in_flight=2), worker("w1")])
    policy = InOrder("w0", "w1")
    leases = [fleet.seats["w0"].load.charge(1.0, 0.0, streaming=True)]
    assert chosen(first(fleet, policy))[0] == "w0"
    leases.append(fleet.seats["w0"].load.charge(1.0, 0.0, streaming=True))
    assert chosen(first(fleet, policy))[0] == "w1"
    leases[0].release()
    assert chosen(first(fleet, policy))[0] == "w0"


def test_when_all_are_full_none_is_chosen() -> None:
    fleet = fleet_of([worker("w0", max_in_flight=1), worker("w1", max_in_flight=1)])
    for seat in fleet.seats.values():
        seat.load.charge(1.0, 0.0, streaming=True)
    assert first(fleet, InOrder("w0", "w1")) is None


def test_with_no_workers_none_is_chosen_and_nobody_is_asked() -> None:
    policy = InOrder("w0")
    assert choose(policy, ASK, [], {}, (), 0.0) is None
    assert policy.asked == 0


def test_a_worker_that_asked_for_less_is_passed_over_while_another_fits() -> None:
    fleet = fleet_of(3)
    fleet.seats["w0"].health.press(10.0, None)
    policy = InOrder("w0", "w1", "w2")
    assert chosen(first(fleet, policy, now=10.1)) == ("w1", Reason.SPILL, ("w0",))
    assert chosen(first(fleet, policy, now=11.0)) == ("w0", Reason.HOME, ())


def test_when_all_asked_for_less_the_most_wanted_gets_it_all_the_same() -> None:
    fleet = fleet_of(3)
    for seat in fleet.seats.values():
        seat.health.press(10.0, None)
    assert chosen(first(fleet, InOrder("w1", "w0", "w2"), now=10.1)) == ("w1", Reason.HOME, ())


def test_a_full_worker_is_never_chosen_though_all_others_asked_for_less() -> None:
    fleet = fleet_of([worker("w0", max_in_flight=1), worker("w1")])
    fleet.seats["w0"].load.charge(1.0, 0.0, streaming=True)
    fleet.seats["w1"].health.press(10.0, None)
    assert chosen(first(fleet, InOrder("w0", "w1"), now=10.1)) == ("w1", Reason.SPILL, ("w0",))


def test_a_worker_on_trial_gets_one_request_and_the_next_goes_on() -> None:
    fleet = fleet_of(2)
    seat = fleet.seats["w0"]
    for _ in range(3):
        fleet.feed(seat, REQUEST_FAILED, 0.0)
    for _ in range(2):
        fleet.feed(seat, PROBE_OK, 10.0)
    policy = InOrder("w0", "w1")
    assert chosen(first(fleet, policy))[0] == "w0"
    seat.load.charge(1.0, 10.0, streaming=True)
    assert chosen(first(fleet, policy)) == ("w1", Reason.SPILL, ("w0",))


def test_after_a_failed_attempt_the_reason_is_retry_whoever_was_passed_over() -> None:
    fleet = fleet_of([worker("w0"), worker("w1", max_in_flight=1), worker("w2")])
    fleet.seats["w1"].load.charge(1.0, 0.0, streaming=True)
    assert chosen(first(fleet, InOrder("w0", "w1", "w2"), tried=("w0",))) == ("w2", Reason.RETRY, ("w1",))


@pytest.mark.parametrize("ask", [ASK, NOTHING])
def test_where_no_affinity_was_applied_the_reason_stays_load(ask: Ask) -> None:
    """A full worker was passed over, but nothing preferred it."""
    fleet = fleet_of([worker("w0", max_in_flight=1), worker("w1")])
    fleet.seats["w0"].load.charge(1.0, 0.0, streaming=True)
    assert chosen(first(fleet, InOrder("w0", "w1", reason=Reason.LOAD), ask)) == ("w1", Reason.LOAD, ("w0",))


def test_a_worker_is_full_of_what_all_processes_of_this_machine_sent_it() -> None:
    fleet = fleet_of([worker("w0", max_in_flight=3), worker("w1")])
    load = fleet.seats["w0"].load
    load.charge(1.0, 0.0, streaming=True)
    load.hear_siblings(1, 0, 0.0)
    assert chosen(first(fleet, InOrder("w0", "w1")))[0] == "w0"
    load.hear_siblings(2, 0, 0.0)
    assert chosen(first(fleet, InOrder("w0", "w1"))) == ("w1", Reason.SPILL, ("w0",))


def test_a_worker_that_starts_slowly_is_passed_over_while_another_fits() -> None:
    fleet = fleet_of(2)
    seat = fleet.seats["w0"]
    seat.easing = SlowStart(0.0, 20.0)
    assert chosen(first(fleet, InOrder("w0", "w1"), now=1.0))[0] == "w0"
    seat.load.charge(1.0, 0.0, streaming=True)
    assert chosen(first(fleet, InOrder("w0", "w1"), now=1.0)) == ("w1", Reason.SPILL, ("w0",))
    assert chosen(first(fleet, InOrder("w0", "w1"), now=20.0)) == ("w0", Reason.HOME, ())


def test_where_nobody_else_fits_a_worker_that_is_eased_is_used_all_the_same() -> None:
    fleet = fleet_of([worker("w0"), worker("w1", max_in_flight=1)])
    fleet.seats["w1"].load.charge(1.0, 0.0, streaming=True)
    fleet.seats["w0"].easing = HandOver(0.0, 10.0)
    assert chosen(first(fleet, InOrder("w0", "w1"), now=10.0)) == ("w0", Reason.HOME, ())
    assert chosen(first(fleet, InOrder("w1", "w0"), now=10.0)) == ("w0", Reason.SPILL, ("w1",))


def test_a_worker_that_hands_over_loses_its_prompts_one_after_the_other() -> None:
    fleet = fleet_of(2)
    fleet.seats["w0"].easing = HandOver(0.0, 10.0)
    asks = [ask_of(f"prompt number {at} ".encode() * 10) for at in range(100)]
    left = [
        sum(chosen(first(fleet, InOrder("w0", "w1"), ask, now=now))[0] == "w0" for ask in asks) for now in (0, 5, 10)
    ]
    assert left[0] == 100
    assert 30 <= left[1] <= 70
    assert left[2] == 0


def test_choosing_changes_nothing() -> None:
    fleet = fleet_of(2)
    before = [(seat.load.in_flight, seat.load.charged, seat.health.state) for seat in fleet.seats.values()]
    for _ in range(3):
        first(fleet, InOrder("w0", "w1"))
    assert [(seat.load.in_flight, seat.load.charged, seat.health.state) for seat in fleet.seats.values()] == before
