"""Workers that do badly while the others do well."""

from hypothesis import given
from hypothesis import strategies as st

from router.core.fleet import Fleet, Seat
from router.core.health import EJECTED, REQUEST_FAILED
from router.core.outliers import ERROR_SHARE, SLOW, OutlierLimits, Outliers
from tests.support.fleets import down, fleet_of, named, worker
from tests.support.strategies import FEW


class Desk:
    """A fleet whose requests end as told; ejections are made."""

    def __init__(self, fleet: Fleet, **limits: float) -> None:
        self.fleet = fleet
        self.outliers = Outliers(OutlierLimits(**limits))  # type: ignore[arg-type]
        self.now = 0.0
        self.look()

    def seat(self, name: str) -> Seat:
        return self.fleet.seats[name]

    def serve(self, name: str, good: int, bad: int = 0) -> None:
        """Good ones between the bad, so that failures in a row are not what takes it out."""
        self.seat(name).answered += good
        self.seat(name).failed += bad

    def pace(self, name: str, pace: float, times: int = 12) -> None:
        for _ in range(times):
            self.seat(name).load.learn_pace(pace, 1.0)

    def look(self, seconds: float = 1.0) -> list[tuple[str, str]]:
        self.now += seconds
        out = self.outliers.look(list(self.fleet.seats.values()), self.now)
        for seat, cause in out:
            self.fleet.feed(seat, EJECTED, self.now, cause)
        return [(seat.id, cause) for seat, cause in out]


# Errors.


def test_a_worker_that_fails_every_other_request_is_out() -> None:
    desk = Desk(fleet_of(4))
    for name in named(3):
        desk.serve(name, 20)
    desk.serve("w3", 10, 10)
    assert desk.look() == [("w3", ERROR_SHARE)]
    assert desk.seat("w3").health.state == "down"


def test_a_few_requests_mean_nothing() -> None:
    desk = Desk(fleet_of(4))
    desk.serve("w3", 0, 9)
    assert desk.look() == []
    desk.serve("w3", 0, 1)
    assert desk.look() == [("w3", ERROR_SHARE)]


def test_what_was_long_ago_means_nothing() -> None:
    desk = Desk(fleet_of(4), window_seconds=30.0)
    desk.serve("w3", 0, 9)
    for _ in range(40):
        assert desk.look() == []
    desk.serve("w3", 0, 9)
    assert desk.look() == []


def test_requests_that_fail_everywhere_eject_nobody() -> None:
    """One client's poisonous requests, say, which every worker answers with a 500."""
    desk = Desk(fleet_of(4))
    for name in named(4):
        desk.serve(name, 5, 15)
    assert desk.look() == []


def test_the_only_worker_stays() -> None:
    desk = Desk(fleet_of(1))
    desk.serve("w0", 0, 100)
    assert desk.look() == []


def test_at_most_a_share_of_the_fleet_is_out_whatever_took_it_out() -> None:
    desk = Desk(fleet_of(10), most_ejected=0.3)
    down(desk.fleet, desk.seat("w0"))
    for name in named(10)[1:]:
        desk.serve(name, 200)
    for at in range(1, 5):
        desk.serve(f"w{at}", 0, 200 + 100 * at)
    desk.outliers.limits = OutlierLimits(most_ejected=0.3)
    assert desk.look() == [("w4", ERROR_SHARE), ("w3", ERROR_SHARE)], "the worst first"
    assert desk.look() == []


def test_a_share_of_nothing_ejects_nobody() -> None:
    desk = Desk(fleet_of(4), most_ejected=0.0)
    desk.serve("w3", 0, 100)
    assert desk.look() == []


def test_one_that_is_back_begins_anew() -> None:
    desk = Desk(fleet_of(4))
    desk.serve("w3", 0, 50)
    assert desk.look() == [("w3", ERROR_SHARE)]
    health = desk.seat("w3").health
    health.state, health.proven = type(health.state).READY, True
    assert desk.look() == []
    desk.serve("w3", 0, 9)
    assert desk.look() == []


def test_failed_requests_are_counted_by_the_fleet() -> None:
    fleet = fleet_of(2)
    fleet.feed(fleet.seats["w0"], REQUEST_FAILED, 0.0)
    assert (fleet.seats["w0"].failed, fleet.seats["w1"].failed) == (1, 0)


# Paces.


def test_a_worker_that_is_far_slower_than_the_others_is_out() -> None:
    desk = Desk(fleet_of(4))
    for name in named(3):
        desk.pace(name, 10_000.0)
    desk.pace("w3", 1_000.0)
    assert desk.look() == [("w3", SLOW)]


def test_half_or_a_third_as_fast_is_normal() -> None:
    desk = Desk(fleet_of(6))
    for at, name in enumerate(named(6)):
        desk.pace(name, (12_000.0, 6_000.0, 4_000.0)[at % 3])
    assert desk.look() == []


@FEW
@given(st.lists(st.floats(1.0, 3.0), min_size=1, max_size=12))
def test_no_fleet_whose_fastest_is_three_times_its_slowest_loses_a_worker(paces: list[float]) -> None:
    desk = Desk(fleet_of(len(paces)))
    for name, pace in zip(named(len(paces)), paces, strict=True):
        desk.pace(name, 1000.0 * pace)
    assert desk.look() == []


def test_of_two_nobody_can_say_who_is_the_exception() -> None:
    desk = Desk(fleet_of(2))
    desk.pace("w0", 10_000.0)
    desk.pace("w1", 100.0)
    assert desk.look() == []


def test_workers_of_another_model_are_another_matter() -> None:
    fleet = fleet_of([worker(name, models=("small",)) for name in named(3)] + [worker("big", models=("big",))])
    desk = Desk(fleet)
    for name in named(3):
        desk.pace(name, 10_000.0)
    desk.pace("big", 500.0)
    assert desk.look() == []


def test_one_that_was_said_to_be_weaker_is_measured_by_its_weight() -> None:
    fleet = fleet_of([*(worker(name) for name in named(3)), worker("weak", weight=0.1)])
    desk = Desk(fleet)
    for name in named(3):
        desk.pace(name, 10_000.0)
    desk.pace("weak", 1_000.0)
    assert desk.look() == []


def test_a_slow_one_that_is_back_must_be_slow_anew() -> None:
    desk = Desk(fleet_of(4))
    for name in named(3):
        desk.pace(name, 10_000.0)
    desk.pace("w3", 1_000.0)
    desk.look()
    seat = desk.seat("w3")
    seat.health.state, seat.health.proven = type(seat.health.state).READY, True
    desk.pace("w3", 1_000.0, times=9)
    assert desk.look() == []
    desk.pace("w3", 1_000.0, times=1)
    assert desk.look() == [("w3", SLOW)]


def test_one_that_recovers_is_believed_at_once() -> None:
    desk = Desk(fleet_of(4))
    for name in named(3):
        desk.pace(name, 10_000.0)
    desk.pace("w3", 1_000.0, times=5)
    desk.pace("w3", 10_000.0, times=5)
    assert desk.look() == []


@FEW
@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 30), st.integers(0, 30)), max_size=60),
    st.floats(0.0, 1.0),
)
def test_never_more_than_the_share_is_out(told: list[tuple[int, int, int]], share: float) -> None:
    desk = Desk(fleet_of(8), most_ejected=share, window_seconds=10.0)
    for at, good, bad in told:
        desk.serve(f"w{at}", good, bad)
        desk.look()
        out = sum(seat.health.state == "down" for seat in desk.fleet.seats.values())
        assert out <= share * 8


def test_workers_that_left_are_forgotten() -> None:
    desk = Desk(fleet_of(3))
    desk.fleet.reconcile([worker("w0")])
    desk.look()
    assert [seat.id for seat in desk.outliers._tracks] == ["w0"]
