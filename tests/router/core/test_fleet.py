"""Known workers, made equal to what discovery reports; and which of them may be used."""

import tracemalloc
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.easing import HandOver, SlowStart
from router.core.fleet import MOST_CACHED, SETTLED_SECONDS, Fleet, Seat
from router.core.health import EJECTED, PROBE_FAILED, PROBE_OK, REQUEST_FAILED, REQUEST_OK, STALLED, Signal
from router.types import Worker, WorkerState, worker_from_url
from tests.support.fleets import down, drain, fleet_of, named, ready, undrain, worker
from tests.support.strategies import names, signals


def ids(seats: list[Seat] | tuple[Seat, ...]) -> list[str]:
    return [seat.id for seat in seats]


def by_requests_down(fleet: Fleet, seat: Seat) -> None:
    for _ in range(3):
        fleet.feed(seat, REQUEST_FAILED, 0.0)


# Reconciliation.


def test_a_fleet_makes_itself_equal_to_each_complete_set() -> None:
    fleet = Fleet()
    changes = fleet.reconcile([worker("a"), worker("b")])
    assert (ids(changes.joined), ids(changes.left), ids(changes.updated)) == (["a", "b"], [], [])
    changes = fleet.reconcile([worker("b"), worker("c")])
    assert (ids(changes.joined), ids(changes.left), ids(changes.updated)) == (["c"], ["a"], [])
    assert sorted(fleet.seats) == ["b", "c"]
    changes = fleet.reconcile([])
    assert sorted(ids(changes.left)) == ["b", "c"]
    assert fleet.seats == {}


def test_the_same_set_again_changes_nothing() -> None:
    fleet = fleet_of(3)
    seats = dict(fleet.seats)
    changes = fleet.reconcile([worker(name) for name in reversed(named(3))])
    assert changes.joined == changes.left == changes.updated == ()
    assert fleet.seats == seats


def test_a_kept_worker_keeps_its_load_its_health_and_its_models() -> None:
    fleet = fleet_of(2)
    seat = fleet.seats["w0"]
    fleet.discover(seat, frozenset({"m"}))
    lease = seat.load.charge(100.0, 0.0, streaming=True)
    changes = fleet.reconcile([worker("w0", weight=2.0, max_in_flight=4)])
    assert changes.updated == (seat,)
    assert (seat.load.in_flight, seat.load.charged, seat.weight, seat.most) == (1, 100.0, 2.0, 4)
    assert seat.health.state is WorkerState.READY
    assert seat.models == {"m"}
    lease.release()


def test_a_worker_at_another_address_is_another_incarnation() -> None:
    """What the old one was charged with is released to the old one; the new one begins with nothing."""
    fleet = fleet_of(["w0"])
    old = fleet.seats["w0"]
    lease = old.load.charge(100.0, 0.0, streaming=True)
    moved = worker_from_url("http://elsewhere:1", id="w0")
    changes = fleet.reconcile([moved])
    new = fleet.seats["w0"]
    assert (changes.left, changes.joined, changes.updated) == ((old,), (new,), ())
    assert new.load.in_flight == 0
    assert new.health.state is WorkerState.STARTING
    assert fleet.candidates(None) == []
    lease.release()
    assert (old.load.in_flight, new.load.in_flight) == (0, 0)


@pytest.mark.parametrize("url", ["http://w:1", "http://w:1/", "http://W:1", "http://w:1/v1"])
def test_the_same_worker_in_another_spelling_is_one(url: str) -> None:
    fleet = Fleet()
    fleet.reconcile([worker_from_url("http://w:1"), worker_from_url(url)])
    assert list(fleet.seats) == ["w:1"]
    assert len(fleet.ring) == 1
    assert fleet.reconcile([worker_from_url(url)]).left == ()


def test_of_two_with_one_id_the_last_counts() -> None:
    fleet = Fleet()
    fleet.reconcile([worker_from_url("http://w:1", models=("old",)), worker_from_url("http://w:1/", models=("new",))])
    ready(fleet)
    assert fleet.models() == ["new"]
    assert fleet.candidates("old") == []


def test_registering_a_worker_again_with_another_model_leaves_no_trace_of_the_old_one() -> None:
    fleet = fleet_of([worker("w0", models=("old",))])
    assert ids(fleet.candidates("old")) == ["w0"]
    fleet.reconcile([worker("w0", models=("new",))])
    assert fleet.candidates("old") == []
    assert not fleet.known_model("old")
    assert not fleet.served("old")
    assert ids(fleet.candidates("new")) == ["w0"]
    fleet.reconcile([])
    assert fleet.models() == []
    assert not fleet.served("new")
    assert len(fleet.ring) == 0


def test_the_ring_stands_over_known_workers_whatever_their_health() -> None:
    fleet = fleet_of(4)
    before = [list(fleet.ring.walk(key << 50)) for key in range(100)]
    down(fleet, fleet.seats["w1"])
    assert [list(fleet.ring.walk(key << 50)) for key in range(100)] == before


@given(st.lists(st.lists(names.map(worker) | names.map(lambda name: worker(name, weight=2.0)), max_size=8), max_size=6))
def test_after_any_history_the_fleet_is_what_the_last_set_says(sets: list[list[Worker]]) -> None:
    fleet, known = Fleet(), set[str]()
    for workers in sets:
        changes = fleet.reconcile(workers)
        wanted = {each.id: each for each in workers}
        assert {name: seat.worker for name, seat in fleet.seats.items()} == wanted
        assert sorted(fleet.ring.walk(1)) == sorted(wanted)
        assert set(ids(changes.joined)) == set(wanted) - known
        assert set(ids(changes.left)) == known - set(wanted)
        assert all(seat.weight == wanted[name].weight for name, seat in fleet.seats.items())
        known = set(wanted)


# Candidates.


def test_candidates_come_in_the_order_of_their_names() -> None:
    fleet = Fleet()
    fleet.reconcile([worker(name) for name in ("c", "a", "b")])
    ready(fleet, fleet.seats["c"], fleet.seats["b"], fleet.seats["a"])
    assert ids(fleet.candidates(None)) == ["a", "b", "c"]


def test_only_workers_that_may_be_used_are_candidates() -> None:
    fleet = fleet_of(["down", "drained", "ready", "suspect", "trial"])
    seats = fleet.seats
    down(fleet, seats["down"])
    drain(fleet, seats["drained"])
    fleet.feed(seats["suspect"], PROBE_FAILED, 0.0)
    by_requests_down(fleet, seats["trial"])
    for _ in range(2):
        fleet.feed(seats["trial"], PROBE_OK, 10.0)
    fleet.reconcile([*(seat.worker for seat in seats.values()), worker("new")])
    assert ids(fleet.candidates(None)) == ["ready", "suspect", "trial"]
    assert sorted(ids(fleet.ready())) == ["ready", "suspect", "trial"]


def test_a_drained_worker_comes_back_when_told() -> None:
    fleet = fleet_of(2)
    changed = drain(fleet, fleet.seats["w0"])
    assert changed is not None
    assert (changed.before, changed.after, changed.cause) == (WorkerState.READY, WorkerState.DRAINING, "drain")
    assert ids(fleet.candidates(None)) == ["w1"]
    assert drain(fleet, fleet.seats["w0"]) is None
    assert undrain(fleet, fleet.seats["w0"]) is not None
    assert ids(fleet.candidates(None)) == ["w0", "w1"]


def test_a_worker_on_trial_takes_one_request_at_a_time() -> None:
    fleet = fleet_of([worker("w0", max_in_flight=8)])
    seat = fleet.seats["w0"]
    assert seat.most == 8
    by_requests_down(fleet, seat)
    for _ in range(2):
        fleet.feed(seat, PROBE_OK, 10.0)
    assert (seat.health.state, seat.most) == (WorkerState.TRIAL, 1)
    fleet.feed(seat, REQUEST_OK, 10.0)
    assert (seat.health.state, seat.most) == (WorkerState.READY, 8)


def test_a_change_is_told_with_its_cause_and_only_when_there_is_one() -> None:
    fleet = fleet_of(1)
    seat = fleet.seats["w0"]
    assert fleet.feed(seat, PROBE_OK, 0.0) is None
    changed = fleet.feed(seat, PROBE_FAILED, 0.0, "HTTP 500")
    assert changed is not None
    assert (changed.worker, changed.after, changed.cause) == ("w0", WorkerState.SUSPECT, "HTTP 500")


# Eased in and out.


def join(fleet: Fleet, name: str, now: float) -> Seat:
    """A worker comes to a fleet at work, and is ready."""
    fleet.reconcile([*(seat.worker for seat in fleet.seats.values()), worker(name)])
    ready(fleet, fleet.seats[name], now=now)
    return fleet.seats[name]


def test_a_fleet_that_starts_together_starts_at_once() -> None:
    fleet = Fleet()
    fleet.reconcile([worker(name) for name in named(4)])
    for at, seat in enumerate(fleet.seats.values()):
        ready(fleet, seat, now=at * SETTLED_SECONDS / 4)
    assert [seat.easing for seat in fleet.seats.values()] == [None] * 4


def test_a_worker_that_joins_others_at_work_starts_slowly() -> None:
    fleet = fleet_of(2)
    seat = join(fleet, "new", 100.0)
    assert isinstance(seat.easing, SlowStart)
    assert (seat.easing.begin, seat.easing.until) == (100.0, 100.0 + fleet.slow_start_seconds)
    assert [other.easing for name, other in fleet.seats.items() if name != "new"] == [None, None]


def test_a_worker_that_joins_none_that_works_starts_at_once() -> None:
    fleet = fleet_of(2)
    for seat in fleet.seats.values():
        down(fleet, seat)
    assert join(fleet, "new", 100.0).easing is None


def test_no_worker_starts_slowly_where_that_is_turned_off() -> None:
    fleet = fleet_of(2)
    fleet.slow_start_seconds = 0.0
    assert join(fleet, "new", 100.0).easing is None


def test_a_worker_that_comes_back_from_the_dead_starts_slowly_again_and_one_that_was_suspected_does_not() -> None:
    fleet = fleet_of(3)
    dead, suspected = fleet.seats["w0"], fleet.seats["w1"]
    down(fleet, dead, 100.0)
    fleet.feed(suspected, PROBE_FAILED, 100.0)
    for _ in range(4):
        fleet.feed(dead, PROBE_OK, 110.0)
        fleet.feed(suspected, PROBE_OK, 110.0)
    fleet.feed(dead, REQUEST_OK, 111.0)
    assert dead.health.state is suspected.health.state is WorkerState.READY
    assert isinstance(dead.easing, SlowStart)
    assert suspected.easing is None


def test_a_worker_that_hands_over_is_eased_until_it_drains() -> None:
    fleet = fleet_of(2)
    seat = fleet.seats["w0"]
    fleet.hand_over(seat, 10.0, 60.0)
    assert isinstance(seat.easing, HandOver)
    assert seat.easing.until == 70.0
    assert ids(fleet.candidates(None)) == ["w0", "w1"]
    drain(fleet, seat)
    assert seat.easing is None


def test_a_worker_s_speed_is_its_weight_until_more_is_known() -> None:
    fleet = fleet_of([worker("w0", weight=3.0), worker("w1")])
    assert [seat.speed for seat in fleet.seats.values()] == [3.0, 1.0]
    fleet.reconcile([worker("w0", weight=2.0), worker("w1")])
    assert [seat.speed for seat in fleet.seats.values()] == [2.0, 1.0]


# Models.


def test_a_request_goes_only_where_its_model_is_served() -> None:
    fleet = fleet_of([worker("a", models=("x",)), worker("b", models=("x", "y")), worker("c", models=())])
    assert ids(fleet.candidates("x")) == ["a", "b"]
    assert ids(fleet.candidates("y")) == ["b"]
    assert ids(fleet.candidates("z")) == []
    assert ids(fleet.candidates(None)) == ["a", "b", "c"]
    assert fleet.models() == ["x", "y"]
    assert fleet.served("y")
    assert not fleet.served("z")


def test_a_worker_that_publishes_no_list_serves_any_model_but_names_none() -> None:
    fleet = fleet_of(1)
    assert ids(fleet.candidates("anything")) == ["w0"]
    assert fleet.served("anything")
    assert not fleet.known_model("anything")
    assert fleet.models() == []


def test_published_models_count_unless_others_are_configured() -> None:
    fleet = fleet_of([worker("a"), worker("b", models=("x",))])
    for seat in fleet.seats.values():
        fleet.discover(seat, frozenset({"y"}))
    assert ids(fleet.candidates("x")) == ["b"]
    assert ids(fleet.candidates("y")) == ["a"]
    fleet.discover(fleet.seats["a"], None)
    assert ids(fleet.candidates("x")) == ["a", "b"]


def test_a_model_is_known_though_its_workers_are_down() -> None:
    fleet = fleet_of([worker("a", models=("x",)), worker("b", models=("y",))])
    down(fleet, fleet.seats["a"])
    assert fleet.served("x")
    assert fleet.known_model("x")


def test_what_was_answered_before_a_change_is_not_answered_after_it() -> None:
    fleet = fleet_of(3)
    assert len(fleet.candidates("m")) == 3
    down(fleet, fleet.seats["w0"])
    assert len(fleet.candidates("m")) == 2
    fleet.discover(fleet.seats["w1"], frozenset({"other"}))
    assert len(fleet.candidates("m")) == 1
    fleet.reconcile([worker("w2"), worker("w9")])
    assert ids(fleet.candidates("m")) == ["w2"]
    ready(fleet)
    assert ids(fleet.candidates("m")) == ["w2", "w9"]


def test_names_that_nobody_serves_do_not_fill_the_memory() -> None:
    fleet = fleet_of(2)
    for at in range(10 * MOST_CACHED):
        assert len(fleet.candidates(f"unknown-{at}")) == 2
    tables = [value for value in vars(fleet).values() if isinstance(value, dict | set | frozenset | list)]
    assert max(len(table) for table in tables) <= MOST_CACHED
    assert fleet.models() == []


def test_huge_names_do_not_fill_the_memory() -> None:
    """A name is the client's to choose, up to the limit on bodies."""
    fleet = fleet_of(2)
    tracemalloc.start()
    try:
        for at in range(100):
            fleet.candidates(f"{at:06}" * 20_000)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 2_000_000


# Panic.


@dataclass
class Case:
    good: int
    bad: int
    never: int
    usable: int
    panics: bool


@pytest.mark.parametrize(
    "case",
    [
        Case(good=3, bad=0, never=0, usable=3, panics=False),
        Case(good=1, bad=8, never=0, usable=1, panics=False),
        Case(good=0, bad=3, never=0, usable=3, panics=True),
        Case(good=0, bad=1, never=0, usable=1, panics=True),
        Case(good=0, bad=3, never=2, usable=3, panics=True),
        Case(good=0, bad=0, never=3, usable=0, panics=False),
        Case(good=2, bad=10, never=0, usable=2, panics=False),
        Case(good=1, bad=11, never=0, usable=12, panics=True),
        Case(good=0, bad=0, never=0, usable=0, panics=False),
    ],
)
def test_when_nearly_all_look_bad_those_that_were_well_are_tried_all_the_same(case: Case) -> None:
    fleet = fleet_of([f"good{at}" for at in range(case.good)] + [f"bad{at}" for at in range(case.bad)])
    never = [worker(f"never{at}") for at in range(case.never)]
    fleet.reconcile([*(seat.worker for seat in fleet.seats.values()), *never])
    for name, seat in fleet.seats.items():
        if name.startswith("bad"):
            down(fleet, seat)
    usable = ids(fleet.candidates(None))
    assert len(usable) == case.usable
    assert not any(name.startswith("never") for name in usable)
    assert usable == sorted(usable)
    assert fleet.panicking is case.panics


def test_a_panic_does_not_bring_back_a_draining_worker() -> None:
    fleet = fleet_of(["drained", "other"])
    drain(fleet, fleet.seats["drained"])
    down(fleet, fleet.seats["other"])
    assert ids(fleet.candidates(None)) == ["other"]


def test_a_panic_ends_when_one_is_well_again() -> None:
    fleet = fleet_of(3)
    for seat in fleet.seats.values():
        down(fleet, seat)
    assert fleet.panicking
    assert fleet.ready() == []
    for _ in range(2):
        fleet.feed(fleet.seats["w1"], PROBE_OK, 1.0)
    assert not fleet.panicking
    assert ids(fleet.candidates(None)) == ["w1"]


def test_a_panic_over_one_model_leaves_the_others_alone() -> None:
    fleet = fleet_of([worker("a", models=("x",)), worker("b", models=("y",)), worker("c", models=("y",))])
    down(fleet, fleet.seats["a"])
    down(fleet, fleet.seats["b"])
    assert ids(fleet.candidates("x")) == ["a"]
    assert ids(fleet.candidates("y")) == ["c"]


@given(st.lists(st.tuples(names, signals), max_size=80))
def test_no_signals_make_a_worker_that_was_never_well_a_candidate(told: list[tuple[str, Signal]]) -> None:
    fleet = Fleet()
    fleet.reconcile([worker(name) for name in named(12)])
    for at, (name, signal) in enumerate(told):
        fleet.feed(fleet.seats[name], signal, float(at))
        usable = fleet.candidates(None)
        assert all(seat.health.was_ready for seat in usable)
        assert all(seat.health.state is not WorkerState.DRAINING for seat in usable)
        assert set(ids(fleet.ready())) <= set(ids(usable)) or not usable
        assert usable == sorted(usable, key=lambda seat: seat.id)


def test_a_fleet_says_what_you_would_ask_at_three_in_the_morning() -> None:
    fleet = fleet_of(2)
    down(fleet, fleet.seats["w1"])
    fleet.seats["w0"].load.charge(1.0, 0.0, streaming=True)
    assert repr(fleet) == "<Fleet w0=ready w1=down>"
    assert repr(fleet.seats["w0"]) == "<Seat w0 ready, 1 in flight>"


@pytest.mark.parametrize("out", [STALLED, EJECTED])
def test_a_worker_that_was_ejected_starts_slowly(out: Signal) -> None:
    fleet = fleet_of(3)
    seat, now = fleet.seats["w0"], SETTLED_SECONDS + 10.0
    changed = fleet.feed(seat, out, now, "why")
    assert changed is not None
    assert (changed.after, changed.cause) == (WorkerState.DOWN, "why")
    assert "w0" not in ids(fleet.candidates(None))
    for _ in range(2):
        fleet.feed(seat, PROBE_OK, now + 10.0)
    assert (seat.health.state, seat.most) == (WorkerState.TRIAL, 1)
    fleet.feed(seat, REQUEST_OK, now + 11.0)
    assert seat.health.state is WorkerState.READY
    assert isinstance(seat.easing, SlowStart)
    assert seat.easing.begin == now + 11.0


def test_when_all_are_ejected_those_that_were_well_are_still_asked() -> None:
    fleet = fleet_of(2)
    for seat in fleet.seats.values():
        fleet.feed(seat, STALLED, 1.0)
    assert fleet.panicking
    assert ids(fleet.candidates(None)) == ["w0", "w1"]
