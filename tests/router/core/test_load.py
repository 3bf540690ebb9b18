"""The ledger: what is charged goes back exactly once."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from router.core.load import HALF_LIFE, Lease, Load, Traffic


def test_a_charge_is_in_flight_until_released_and_waits_until_its_first_token() -> None:
    load = Load()
    lease = load.charge(100.0, 0.0, streaming=True)
    assert (load.in_flight, load.charged, load.wait(0.0)) == (1, 100.0, 100.0)
    lease.first_token(1.0)
    assert (load.in_flight, load.charged) == (1, 0.0)
    assert lease.release() is True
    assert (load.in_flight, load.charged) == (0, 0.0)


def test_a_release_without_a_first_token_gives_everything_back() -> None:
    load = Load()
    load.charge(100.0, 0.0, streaming=False).release()
    assert (load.in_flight, load.charged) == (0, 0.0)


def test_every_method_of_a_lease_may_be_called_again() -> None:
    load = Load()
    kept = load.charge(50.0, 0.0, streaming=True)
    lease = load.charge(100.0, 0.0, streaming=True)
    for _ in range(3):
        lease.first_token(1.0)
    assert [lease.release() for _ in range(3)] == [True, False, False]
    lease.first_token(2.0)
    assert (load.in_flight, load.charged) == (1, 50.0)
    kept.release()


def test_an_idle_worker_has_exactly_nothing_waiting() -> None:
    load = Load()
    for _ in range(100):
        leases = [load.charge(0.1 * at, 0.0, streaming=True) for at in range(10)]
        for lease in leases:
            lease.release()
    assert load.charged == 0.0


def test_a_request_that_had_the_prefill_to_itself_teaches_the_pace() -> None:
    load = Load()
    lease = load.charge(1000.0, 0.0, streaming=True)
    lease.first_token(0.5)
    assert load.pace == 2000.0


def test_a_request_that_waited_behind_another_teaches_nothing() -> None:
    load = Load()
    load.charge(1000.0, 0.0, streaming=True)
    load.charge(1000.0, 0.0, streaming=True).first_token(5.0)
    assert load.pace is None


def test_a_short_or_instant_request_teaches_nothing() -> None:
    load = Load()
    load.charge(10.0, 0.0, streaming=True).first_token(1.0)
    load.charge(1000.0, 0.0, streaming=True).first_token(0.0)
    assert load.pace is None


def test_a_request_that_failed_before_its_first_token_teaches_nothing() -> None:
    """A worker that fails fast is not fast."""
    load = Load()
    load.charge(1000.0, 0.0, streaming=True).release()
    assert load.pace is None


def test_the_pace_rises_quickly_and_falls_slowly() -> None:
    load = Load()
    load.learn_pace(1000, 1.0)
    load.learn_pace(3000, 1.0)
    assert load.pace == 2000
    load.learn_pace(1000, 1.0)
    assert load.pace == pytest.approx(1950)


def with_pace(pace: float) -> Load:
    load = Load()
    load.learn_pace(pace, 1.0)
    return load


def test_a_worker_that_is_late_is_as_far_behind_as_it_is_late() -> None:
    load = with_pace(1000.0)
    load.charge(1000.0, 0.0, streaming=True)
    assert load.wait(1.0) == 1000.0
    assert load.wait(1.2) == 1000.0
    assert load.wait(11.25) == pytest.approx(10_000.0)


def test_a_worker_is_late_for_its_oldest_request_and_no_longer_when_that_is_served() -> None:
    load = with_pace(1000.0)
    old = load.charge(1000.0, 0.0, streaming=True)
    load.charge(1000.0, 100.0, streaming=True)
    assert load.wait(100.0) > 90_000.0
    old.first_token(100.0)
    assert load.wait(100.0) == 1000.0


def test_a_request_that_does_not_stream_is_never_late() -> None:
    """Its first byte comes with its last token, which no pace of prefill foretells."""
    load = with_pace(1000.0)
    load.charge(1000.0, 0.0, streaming=False)
    assert load.wait(1e6) == 1000.0


def test_a_worker_of_unknown_pace_is_never_late() -> None:
    load = Load()
    load.charge(1000.0, 0.0, streaming=True)
    assert load.wait(1e6) == 1000.0


def test_a_released_request_is_late_no_more() -> None:
    load = with_pace(1000.0)
    load.charge(1000.0, 0.0, streaming=True).release()
    assert load.wait(1e6) == 0.0


def test_a_load_shows_itself() -> None:
    load = Load()
    load.charge(12.4, 0.0, streaming=True)
    assert repr(load) == "<Load 1 in flight, 12 tokens waiting>"


def test_traffic_is_halved_in_whole_steps_that_do_not_depend_on_the_moments_between() -> None:
    one, other = Traffic(), Traffic()
    assert one.halvings(5.0) == other.halvings(5.0) == 0
    moments = [5.0 + at for at in range(0, 500, 7)] + [505.0]
    often = sum(one.halvings(moment) for moment in moments)
    assert often == other.halvings(505.0) == int(500 / HALF_LIFE)


def test_traffic_is_not_halved_backwards() -> None:
    traffic = Traffic()
    traffic.halvings(100.0)
    assert traffic.halvings(99.0) == 0
    assert traffic.halvings(100.1 + HALF_LIFE) == 1


class Ledger(RuleBasedStateMachine):
    """Any interleaving of charges, first tokens and releases, some of them twice."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.load = Load()
        self.now = 0.0
        self.open: set[Lease] = set()
        self.waiting: dict[Lease, float] = {}

    @rule(target=leases, tokens=st.floats(0, 1e7), streaming=st.booleans())
    def charge(self, tokens: float, streaming: bool) -> Lease:
        lease = self.load.charge(tokens, self.now, streaming=streaming)
        self.open.add(lease)
        self.waiting[lease] = tokens
        return lease

    @rule(lease=leases)
    def first_token(self, lease: Lease) -> None:
        lease.first_token(self.now)
        self.waiting.pop(lease, None)

    @rule(lease=leases)
    def release(self, lease: Lease) -> None:
        assert lease.release() is (lease in self.open)
        self.open.discard(lease)
        self.waiting.pop(lease, None)

    @rule(seconds=st.floats(0, 1000))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def the_books_balance(self) -> None:
        assert self.load.in_flight == len(self.open)
        assert self.load.charged == pytest.approx(sum(self.waiting.values()), abs=1e-3)
        assert self.load.charged >= -1e-3
        assert self.load.wait(self.now) >= self.load.charged
        assert self.load.pace is None or self.load.pace >= 0

    def teardown(self) -> None:
        for lease in list(self.open):
            lease.release()
        assert self.load.in_flight == 0
        assert self.load.charged == 0.0
        assert self.load.wait(self.now + 1e6) == 0.0


TestTheLedgerBalances = Ledger.TestCase
TestTheLedgerBalances.settings = settings(max_examples=60, stateful_step_count=40)
