"""The books of a whole fleet under anything: charges and releases in any order and again, workers that come and go."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from router.core.choose import Choice
from router.core.fleet import Seat
from router.core.health import DRAINING, PROBE_OK, Signal
from router.core.load import Lease
from router.events import WorkerLeft
from router.observe.bus import Bus
from router.observe.metrics import Metrics
from router.prompt import Prompt
from tests.support.fleets import Stage, worker

NAMES = [f"w{at}" for at in range(5)]
names = st.sampled_from(NAMES)


class Running:
    """One request as the ledger sees it."""

    def __init__(self, seat: Seat, lease: Lease) -> None:
        self.seat, self.lease = seat, lease
        self.open = self.waiting = True


class Books(RuleBasedStateMachine):
    """Every incarnation of a worker has books of its own; what shows is the sum over those that are known."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(NAMES[:3])
        self.bus = Bus()
        self.metrics = Metrics(self.bus, self.stage.fleet, [], lambda: 0, "prefix_cost")
        self.all: list[Running] = []
        self.known = {name: worker(name) for name in NAMES[:3]}
        self.ever: set[Seat] = set(self.stage.fleet.seats.values())

    def reconcile(self) -> None:
        changes = self.stage.fleet.reconcile(self.known.values())
        for seat in changes.left:
            self.stage.mind.left(seat)
            self.bus.emit(WorkerLeft(seat.id))
        self.ever |= set(changes.joined)

    @rule(target=requests, text=st.integers(0, 6), length=st.integers(0, 3000), streaming=st.booleans())
    def choose(self, text: int, length: int, streaming: bool) -> Running | None:
        mind, now = self.stage.mind, self.stage.now
        asked = self.stage.weigh(Prompt(b"%d " % text * length))
        choice: Choice | None = mind.choose(asked, None, (), now)
        if choice is None:
            assert not any(seat.most is None or not seat.is_full() for seat in self.stage.fleet.candidates(None))
            return None
        assert self.stage.fleet.seats[choice.seat.id] is choice.seat
        self.all.append(Running(choice.seat, mind.commit(asked, choice, now, streaming=streaming)))
        return self.all[-1]

    @rule(request=requests)
    def first_token(self, request: Running | None) -> None:
        if request is not None:
            request.lease.first_token(self.stage.now)
            request.waiting = False

    @rule(request=requests)
    def release(self, request: Running | None) -> None:
        if request is not None:
            assert request.lease.release() is request.open
            request.open = request.waiting = False

    @rule(name=names, weight=st.sampled_from([1.0, 2.0]), most=st.none() | st.integers(1, 3))
    def join_or_change(self, name: str, weight: float, most: int | None) -> None:
        self.known[name] = worker(name, weight=weight, max_in_flight=most)
        self.reconcile()

    @rule(name=names)
    def leave(self, name: str) -> None:
        self.known.pop(name, None)
        self.reconcile()

    @rule(name=names, signal=st.sampled_from(list(Signal)))
    def hear(self, name: str, signal: Signal) -> None:
        if (seat := self.stage.fleet.seats.get(name)) is not None:
            self.stage.fleet.feed(seat, signal, self.stage.now)

    @rule()
    def all_well(self) -> None:
        for seat in self.stage.fleet.seats.values():
            self.stage.fleet.feed(seat, PROBE_OK, self.stage.now)

    @rule(seconds=st.floats(0, 100))
    def time_passes(self, seconds: float) -> None:
        self.stage.now += seconds

    @invariant()
    def every_incarnation_has_what_runs_there(self) -> None:
        for seat in self.ever:
            running = [request for request in self.all if request.seat is seat]
            assert seat.load.in_flight == sum(request.open for request in running) >= 0
            assert seat.load.waiting == sum(request.waiting for request in running)
            expected = sum(request.lease.tokens for request in running if request.waiting)
            assert abs(seat.load.charged - expected) < 1e-3
            if not running or not any(request.open for request in running):
                assert seat.load.charged == 0.0

    @invariant()
    def the_series_are_those_of_the_workers_that_are_known(self) -> None:
        gauges = self.metrics.snapshot().gauges
        seats = self.stage.fleet.seats
        assert {worker for (worker,) in gauges["in_flight"]} == set(seats) == set(self.known)
        open_there = [request for request in self.all if request.open and seats.get(request.seat.id) is request.seat]
        assert sum(count for (count,) in gauges["in_flight"].values()) == len(open_there)
        assert all(count >= 0 for (count,) in gauges["outstanding_tokens"].values())

    @invariant()
    def nobody_who_drains_or_left_is_a_candidate(self) -> None:
        seats = self.stage.fleet.seats
        for seat in self.stage.fleet.candidates(None):
            assert seats.get(seat.id) is seat
            assert seat.health.state is not DRAINING
        assert len(self.stage.fleet.ring) == len(seats)

    def teardown(self) -> None:
        for request in self.all:
            request.lease.release()
        assert all((s.load.in_flight, s.load.waiting, s.load.charged) == (0, 0, 0.0) for s in self.ever)


TestTheBooksOfAFleetBalance = Books.TestCase
TestTheBooksOfAFleetBalance.settings = settings(max_examples=40, stateful_step_count=40)
