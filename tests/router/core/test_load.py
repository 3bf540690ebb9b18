"""The ledger: what is charged goes back exactly once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from router.core.load import (
    GRACE,
    MOST_DONE,
    PATIENCE,
    PENALTY_FACTOR,
    PENALTY_HALF_LIFE,
    Lease,
    Load,
)


def test_an_idle_worker_has_exactly_nothing_waiting() -> None:
    load = Load()
    for _ in range(100):
        leases = [load.charge(0.1 * at, 0.0, streaming=True) for at in range(10)]
        for lease in leases:
            lease.release()
    assert load.charged == 0.0


def test_a_short_or_instant_request_teaches_nothing() -> None:
    load = Load()
    load.learn_pace(10.0, 1.0)
    load.learn_pace(1000.0, 0.0)
    load.learn_pace(1000.0, -1.0)
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
    due = PATIENCE * 1.0 + GRACE
    assert load.wait(0.0) == 1000.0
    assert load.wait(due) <= 1000.0
    assert load.wait(due + 10.0) == pytest.approx(10_000.0)


def test_lateness_is_no_sum_with_what_waits_but_the_larger_of_both() -> None:
    """It stands in for queues that no count shows; what is counted is a part of it."""
    load = with_pace(1000.0)
    load.charge(1000.0, 0.0, streaming=True)
    load.hear_siblings(3, 2, 50_000.0)
    load.hear_replica("r1", 1, 7000.0, 1e6)
    late = 10.0 + PATIENCE + GRACE
    assert 57_000.0 <= load.wait(late) <= 58_000.0
    assert load.wait(late + 1000.0) == pytest.approx(1_010_000.0)


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
    assert load.wait(1e6) <= 1000.0


def test_a_worker_of_unknown_pace_is_never_late() -> None:
    load = Load()
    load.charge(1000.0, 0.0, streaming=True)
    assert load.wait(1e6) == 1000.0


def test_a_released_request_is_late_no_more() -> None:
    load = with_pace(1000.0)
    load.charge(1000.0, 0.0, streaming=True).release()
    assert load.wait(1e6) == 0.0


# What is left of what was charged.


def test_of_the_oldest_request_what_its_worker_has_computed_by_its_pace_waits_no_more() -> None:
    load = with_pace(1000.0)
    load.charge(1000.0, 10.0, streaming=True)
    load.charge(500.0, 10.2, streaming=True)
    assert load.left(10.2) == pytest.approx(1300.0)
    assert load.left(10.5) == pytest.approx(1000.0)
    assert load.wait(10.5) == load.left(10.5)


def test_a_request_that_has_not_begun_its_answer_is_never_wholly_computed() -> None:
    load = with_pace(1000.0)
    load.charge(1000.0, 0.0, streaming=False)
    assert load.left(1e6) == pytest.approx((1 - MOST_DONE) * 1000.0)
    assert load.left(1e6) > 0


def test_when_the_oldest_begins_its_answer_the_next_is_computed_from_then_on() -> None:
    load = with_pace(1000.0)
    first = load.charge(1000.0, 0.0, streaming=True)
    load.charge(1000.0, 0.1, streaming=True)
    first.first_token(3.0)
    assert load.left(3.0) == 1000.0
    assert load.left(3.5) == pytest.approx(500.0)


def test_of_a_worker_of_unknown_pace_all_is_left() -> None:
    load = Load()
    load.charge(1000.0, 0.0, streaming=True)
    assert load.left(100.0) == 1000.0


def test_when_the_oldest_is_given_up_nothing_of_the_next_is_computed_yet() -> None:
    load = with_pace(1000.0)
    gone = load.charge(1000.0, 0.0, streaming=True)
    load.charge(1000.0, 5.0, streaming=True)
    gone.release()
    assert load.left(5.0) == 1000.0


# What others say.


def test_what_the_other_processes_of_this_machine_charged_waits_too() -> None:
    load = Load()
    load.hear_siblings(5, 2, 700.0)
    assert (load.elsewhere, load.waiting_elsewhere, load.wait(0.0)) == (5, 2, 700.0)
    assert (load.in_flight, load.waiting, load.charged) == (0, 0, 0.0)
    load.hear_siblings(0, 0, 0.0)
    assert load.wait(0.0) == 0.0


def test_what_other_replicas_have_waiting_counts_until_their_word_expires() -> None:
    load = Load()
    load.hear_replica("r1", 2, 300.0, 10.0)
    load.hear_replica("r2", 1, 50.0, 20.0)
    assert [load.wait(now) for now in (0.0, 9.9, 10.0, 19.9, 20.0)] == [350.0, 350.0, 50.0, 50.0, 0.0]


def test_of_one_replica_the_last_word_counts_and_nothing_waiting_is_remembered_of_nobody() -> None:
    load = Load()
    load.hear_replica("r1", 2, 300.0, 10.0)
    load.hear_replica("r1", 1, 100.0, 10.0)
    assert load.wait(0.0) == 100.0
    load.hear_replica("r1", 0, 0.0, 10.0)
    assert load.wait(0.0) == 0.0
    assert load.remote == {}


def test_a_queue_of_strangers_counts_for_as_long_as_it_is_known() -> None:
    load = Load()
    load.hear_queue(4, 500.0, 10.0, 0.6)
    assert load.wait(10.0) == load.wait(10.5) == 2000.0
    assert load.wait(10.6) == 0.0


def test_of_a_queue_only_strangers_are_added_to_what_is_known() -> None:
    load = Load()
    load.charge(100.0, 0.0, streaming=True)
    load.hear_siblings(2, 1, 200.0)
    load.hear_replica("r1", 1, 300.0, 50.0)
    load.hear_replica("gone", 7, 9000.0, 0.5)
    load.hear_queue(5, 1000.0, 1.0, 10.0)
    assert load.wait(1.0) == 600.0 + 2 * 1000.0
    load.hear_queue(2, 1000.0, 2.0, 10.0)
    assert load.wait(2.0) == 600.0


@given(st.integers(0, 50), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0.1, 100), st.floats(0, 1000))
def test_a_stale_look_at_a_queue_makes_a_worker_neither_busier_nor_idler_than_its_books(
    waiting: int, charged: float, now: float, lasting: float, later: float
) -> None:
    load, quiet = Load(), Load()
    for each in (load, quiet):
        each.charge(charged, now, streaming=True)
    load.hear_queue(waiting, 1000.0, now, lasting)
    assert load.wait(now) >= quiet.wait(now)
    assert load.wait(now + lasting + later) == quiet.wait(now + lasting + later)


# Failures.


def test_a_worker_that_failed_is_not_idle() -> None:
    load = Load()
    load.penalise(1000.0, 5.0)
    assert load.wait(5.0) == PENALTY_FACTOR * 1000.0
    assert load.wait(5.0 + PENALTY_HALF_LIFE) == pytest.approx(PENALTY_FACTOR * 500.0)
    assert load.wait(5.0 + 30 * PENALTY_HALF_LIFE) < 0.01
    assert load.charged == 0.0


def test_penalties_add_up_as_far_as_they_have_not_faded() -> None:
    load = Load()
    load.penalise(1000.0, 0.0)
    load.penalise(1000.0, PENALTY_HALF_LIFE)
    assert load.wait(PENALTY_HALF_LIFE) == pytest.approx(PENALTY_FACTOR * 1500.0)


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 100)), min_size=1, max_size=8), st.floats(0, 1e5))
def test_a_penalty_only_fades(failures: list[tuple[float, float]], later: float) -> None:
    load, now = Load(), 0.0
    for tokens, apart in failures:
        now += apart
        before = load.wait(now)
        load.penalise(tokens, now)
        assert load.wait(now) == pytest.approx(before + PENALTY_FACTOR * tokens, abs=1.0)  # less than a token is none
    assert 0.0 <= load.wait(now + later) <= load.wait(now)


def test_a_failure_of_a_minute_ago_keeps_nobody_from_learning_the_pace() -> None:
    load = Load()
    load.penalise(1000.0, 0.0)
    lease = load.charge(1000.0, 60.0, streaming=True)
    lease.first_token(60.5)
    assert lease.prefill_seconds == 0.5


def test_a_request_that_found_another_still_waiting_teaches_nothing_however_long_that_one_takes() -> None:
    load = with_pace(1000.0)
    load.charge(1000.0, 0.0, streaming=False)
    lease = load.charge(1000.0, 3.0, streaming=True)
    lease.first_token(5.0)
    assert lease.prefill_seconds is None


def test_a_load_shows_itself() -> None:
    load = Load()
    load.charge(12.4, 0.0, streaming=True)
    assert repr(load) == "<Load 1 in flight, 12 tokens waiting>"


class Ledger(RuleBasedStateMachine):
    """Any interleaving of charges, first tokens and releases, some of them twice, and of what others say."""

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

    @rule(
        teller=st.sampled_from(["s", "q", "p", "r1", "r2"]),
        waiting=st.integers(0, 9),
        tokens=st.floats(0, 1e6),
        lasting=st.floats(0, 100),
    )
    def others_speak(self, teller: str, waiting: int, tokens: float, lasting: float) -> None:
        load, before = self.load, self.books()
        if teller == "s":
            load.hear_siblings(waiting + 1, waiting, tokens)
        elif teller == "q":
            load.hear_queue(waiting, tokens, self.now, lasting)
        elif teller == "p":
            load.penalise(tokens, self.now)
        else:
            load.hear_replica(teller, waiting, tokens, self.now + lasting)
        assert self.books() == before

    @rule(tokens=st.floats(64, 1e5), seconds=st.floats(0.01, 100))
    def a_pace_is_learnt(self, tokens: float, seconds: float) -> None:
        self.load.learn_pace(tokens, seconds)

    def books(self) -> tuple[int, int, float]:
        return self.load.in_flight, self.load.waiting, self.load.charged

    @rule(seconds=st.floats(0, 1000))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def the_books_balance(self) -> None:
        assert self.load.in_flight == len(self.open)
        assert self.load.waiting == len(self.waiting)
        assert self.load.charged == pytest.approx(sum(self.waiting.values()), abs=1e-3)
        assert self.load.charged >= -1e-3
        assert -1e-3 <= self.load.left(self.now) <= self.load.charged
        assert self.load.wait(self.now) >= (self.load.charged if self.load.pace is None else self.load.left(self.now))
        assert self.load.pace is None or self.load.pace >= 0

    def teardown(self) -> None:
        for lease in list(self.open):
            lease.release()
        assert self.books() == (0, 0, 0.0)
        self.load.hear_siblings(0, 0, 0.0)
        assert self.load.wait(self.now + 1e6) == 0.0


TestTheLedgerBalances = Ledger.TestCase
TestTheLedgerBalances.settings = settings(max_examples=60, stateful_step_count=40)
