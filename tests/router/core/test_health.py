"""A worker's health: the table row by row, and the numbers beside it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.health import (
    DOWN,
    DRAIN,
    DRAINING,
    EJECTED,
    PROBE_FAILED,
    PROBE_OK,
    READY,
    REQUEST_FAILED,
    REQUEST_OK,
    STALLED,
    STARTING,
    SUSPECT,
    TABLE,
    TRIAL,
    UNDRAIN,
    Health,
    Signal,
    Thresholds,
)  # fmt: skip
from router.types import WorkerState
from tests.support.strategies import MANY, moments, signals

LONG = 1000.0


def after(*told: Signal, limits: Thresholds | None = None, now: float = 0.0) -> Health:
    health = Health(limits or Thresholds())
    for signal in told:
        health.feed(signal, now)
    return health


BAD_REQUESTS = (PROBE_OK, *[REQUEST_FAILED] * 3)
REACHED = {
    STARTING: (),
    READY: (PROBE_OK,),
    SUSPECT: (PROBE_OK, PROBE_FAILED),
    DOWN: (PROBE_OK, *[PROBE_FAILED] * 3),
    DRAINING: (PROBE_OK, DRAIN),
}


def in_trial() -> Health:
    """Down for failed requests, well again after the hold."""
    health = after(*BAD_REQUESTS)
    health.feed(PROBE_OK, LONG)
    health.feed(PROBE_OK, LONG)
    assert health.state is TRIAL
    return health


EXPECTED = [
    (STARTING, PROBE_OK, READY),
    (STARTING, PROBE_FAILED, STARTING),
    (STARTING, REQUEST_OK, STARTING),
    (STARTING, REQUEST_FAILED, STARTING),
    (STARTING, DRAIN, DRAINING),
    (STARTING, UNDRAIN, STARTING),
    (READY, PROBE_OK, READY),
    (READY, PROBE_FAILED, SUSPECT),
    (READY, REQUEST_OK, READY),
    (READY, REQUEST_FAILED, SUSPECT),
    (READY, DRAIN, DRAINING),
    (READY, UNDRAIN, READY),
    (SUSPECT, PROBE_OK, READY),
    (SUSPECT, PROBE_FAILED, SUSPECT),
    (SUSPECT, REQUEST_OK, SUSPECT),
    (SUSPECT, REQUEST_FAILED, SUSPECT),
    (SUSPECT, DRAIN, DRAINING),
    (SUSPECT, UNDRAIN, SUSPECT),
    (DOWN, PROBE_OK, DOWN),
    (DOWN, PROBE_FAILED, DOWN),
    (DOWN, REQUEST_OK, DOWN),
    (DOWN, REQUEST_FAILED, DOWN),
    (DOWN, DRAIN, DRAINING),
    (DOWN, UNDRAIN, DOWN),
    (TRIAL, PROBE_OK, TRIAL),
    (TRIAL, PROBE_FAILED, TRIAL),
    (TRIAL, REQUEST_OK, READY),
    (TRIAL, REQUEST_FAILED, DOWN),
    (TRIAL, DRAIN, DRAINING),
    (TRIAL, UNDRAIN, TRIAL),
    (DRAINING, PROBE_OK, DRAINING),
    (DRAINING, PROBE_FAILED, DRAINING),
    (DRAINING, REQUEST_OK, DRAINING),
    (DRAINING, REQUEST_FAILED, DRAINING),
    (DRAINING, DRAIN, DRAINING),
    (DRAINING, UNDRAIN, READY),
    *[
        (state, out, DOWN if state in (READY, SUSPECT, TRIAL, DOWN) else state)
        for state in WorkerState
        for out in (STALLED, EJECTED)
    ],
]


@pytest.mark.parametrize(("state", "signal", "expected"), EXPECTED)
def test_one_signal_moves_a_worker_as_the_table_says(state: WorkerState, signal: Signal, expected: WorkerState) -> None:
    health = in_trial() if state is TRIAL else after(*REACHED[state])
    assert health.state is state
    assert health.feed(signal, LONG) == (state, expected)


def test_every_state_and_signal_was_looked_at() -> None:
    assert {(state, signal) for state, signal, _ in EXPECTED} == {(s, g) for s in WorkerState for g in Signal}


def test_the_table_s_rows_lead_where_they_say() -> None:
    for condition, then, otherwise in TABLE.values():
        assert condition != "always" or then is otherwise


# Thresholds, both ways.


@pytest.mark.parametrize("bad", [PROBE_FAILED, REQUEST_FAILED])
@pytest.mark.parametrize("enough", [1, 2, 3, 7])
def test_a_worker_is_down_after_that_many_failures_in_a_row_and_not_before(bad: Signal, enough: int) -> None:
    health = after(PROBE_OK, *[bad] * (enough - 1), limits=Thresholds(unhealthy_after=enough))
    assert health.state is (READY if enough == 1 else SUSPECT)
    health.feed(bad, 0.0)
    assert health.state is DOWN


def test_slow_is_not_dead() -> None:
    """One probe in five is late; the worker is never down."""
    health = after(PROBE_OK)
    for at in range(100):
        health.feed(PROBE_FAILED if at % 5 == 0 else PROBE_OK, float(at))
        assert health.state in (READY, SUSPECT)


def test_failures_of_the_two_kinds_are_not_added_up() -> None:
    assert after(PROBE_OK, PROBE_FAILED, PROBE_FAILED, REQUEST_FAILED, REQUEST_FAILED).state is SUSPECT


def test_a_good_request_ends_the_row_of_failed_requests_and_not_that_of_probes() -> None:
    health = after(PROBE_OK, REQUEST_FAILED, REQUEST_FAILED, REQUEST_OK)
    assert health.state is READY
    health.feed(REQUEST_FAILED, 0.0)
    health.feed(REQUEST_FAILED, 0.0)
    assert health.state is SUSPECT
    for signal in (PROBE_FAILED, REQUEST_OK, PROBE_FAILED, REQUEST_OK, PROBE_FAILED):
        health.feed(signal, 0.0)
    assert health.state is DOWN


def test_a_good_probe_says_nothing_of_failed_requests() -> None:
    """A worker whose health page is well and whose requests all fail gets a handful, not the majority."""
    health = after(PROBE_OK)
    for _ in range(3):
        health.feed(REQUEST_FAILED, 0.0)
        health.feed(PROBE_OK, 0.0)
    assert health.state is DOWN


@pytest.mark.parametrize("enough", [1, 2, 5])
def test_a_worker_that_failed_its_probes_is_ready_after_that_many_good_ones(enough: int) -> None:
    health = after(PROBE_OK, *[PROBE_FAILED] * 3, limits=Thresholds(healthy_after=enough))
    for _ in range(enough - 1):
        health.feed(PROBE_OK, 1.0)
        assert health.state is DOWN
    health.feed(PROBE_OK, 1.0)
    assert health.state is READY


def test_good_probes_must_come_in_a_row() -> None:
    health = after(PROBE_OK, *[PROBE_FAILED] * 3)
    for _ in range(5):
        health.feed(PROBE_OK, 1.0)
        health.feed(PROBE_FAILED, 1.0)
    assert health.state is DOWN


def test_a_new_worker_is_ready_at_its_first_good_probe() -> None:
    health = after(*[PROBE_FAILED] * 50)
    assert health.state is STARTING
    assert health.feed(PROBE_OK, 0.0) == (STARTING, READY)


def test_a_worker_was_ready_from_its_first_ready_moment_on() -> None:
    health = after(PROBE_FAILED)
    assert not health.was_ready
    for signal in (PROBE_OK, PROBE_FAILED, PROBE_FAILED, PROBE_FAILED):
        health.feed(signal, 0.0)
        assert health.was_ready


# The breaker.


def test_failed_requests_hold_a_worker_down_for_two_seconds() -> None:
    health = after(*BAD_REQUESTS)
    for _ in range(5):
        health.feed(PROBE_OK, 1.9)
    assert health.state is DOWN
    assert health.feed(PROBE_OK, 2.0) == (DOWN, TRIAL)


def test_failed_probes_hold_nothing() -> None:
    health = after(PROBE_OK, *[PROBE_FAILED] * 3)
    health.feed(PROBE_OK, 0.1)
    assert health.feed(PROBE_OK, 0.2) == (DOWN, READY)


def test_each_failed_trial_doubles_the_hold_up_to_a_minute() -> None:
    health, now, holds = after(*BAD_REQUESTS), 0.0, []
    for _ in range(8):
        start = now
        while health.state is DOWN:
            now += 0.5
            health.feed(PROBE_OK, now)
        holds.append(now - start)
        assert health.state is TRIAL
        health.feed(REQUEST_FAILED, now)
        assert health.state is DOWN
    assert holds == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_a_good_trial_makes_it_ready_and_the_next_hold_short_again() -> None:
    health = in_trial()
    health.feed(REQUEST_FAILED, LONG)
    for _ in range(2):
        health.feed(PROBE_OK, LONG + 4.0)
    assert health.feed(REQUEST_OK, LONG + 4.0) == (TRIAL, READY)
    for _ in range(3):
        health.feed(REQUEST_FAILED, LONG + 10.0)
    for _ in range(2):
        health.feed(PROBE_OK, LONG + 12.0)
    assert health.state is TRIAL


def test_one_late_probe_does_not_end_a_trial() -> None:
    health = in_trial()
    health.feed(PROBE_FAILED, LONG)
    assert health.state is TRIAL
    health.feed(PROBE_FAILED, LONG)
    health.feed(PROBE_FAILED, LONG)
    assert health.state is DOWN


def test_requests_served_in_a_panic_do_not_overrule_the_probes() -> None:
    health = after(PROBE_OK, *[PROBE_FAILED] * 3)
    for _ in range(5):
        assert health.feed(REQUEST_OK, 1.0) == (DOWN, DOWN)
    health.feed(PROBE_OK, 1.0)
    assert health.feed(PROBE_OK, 1.0) == (DOWN, READY)


# Ejection.


def back(health: Health, now: float) -> float:
    """Good probes every half second until it is on trial: when that was."""
    while health.state is DOWN:
        now += 0.5
        health.feed(PROBE_OK, now)
    assert health.state is TRIAL
    return now


@pytest.mark.parametrize("out", [STALLED, EJECTED])
def test_an_ejected_worker_comes_back_by_trial_whatever_its_probes_say(out: Signal) -> None:
    health = after(PROBE_OK, out)
    for at in range(9):
        assert health.feed(PROBE_OK, at * 0.5) == (DOWN, DOWN)
    assert health.feed(PROBE_OK, 5.0) == (DOWN, TRIAL)
    for _ in range(5):
        assert health.feed(PROBE_OK, 6.0) == (TRIAL, TRIAL), "a good probe proves nothing"
    assert health.feed(REQUEST_OK, 6.0) == (TRIAL, READY)


def test_each_ejection_lasts_longer_up_to_the_most() -> None:
    health, now, held = after(PROBE_OK, limits=Thresholds(eject_seconds=10.0, eject_most=25.0)), 0.0, []
    for _ in range(4):
        health.feed(EJECTED, now)
        came_back = back(health, now)
        held.append(came_back - now)
        now = came_back
        health.feed(REQUEST_OK, now)
    assert held == [10.0, 20.0, 25.0, 25.0]


def test_being_well_makes_the_next_ejection_shorter_again() -> None:
    health, now = after(PROBE_OK), 0.0
    for _ in range(3):
        health.feed(EJECTED, now)
        now = back(health, now)
        health.feed(REQUEST_OK, now)
    assert health.ejections == 3
    health.feed(EJECTED, now + 61.0)
    assert health.ejections == 2, "two windows of being well made up for two"
    now = back(health, now + 61.0)
    health.feed(REQUEST_OK, now)
    health.feed(EJECTED, now + 3600.0)
    assert health.ejections == 1


def test_one_that_is_still_silent_is_held_anew_before_its_time_is_over() -> None:
    health = after(PROBE_OK, STALLED)
    for at in range(1, 100):
        health.feed(PROBE_OK, float(at))
        health.feed(STALLED, float(at))
        assert health.state is DOWN
    assert health.ejections > 2
    assert back(health, 100.0) - 100.0 > 5.0, "longer than the first time"


def test_what_a_held_worker_hears_too_early_does_not_lengthen_its_time() -> None:
    health = after(PROBE_OK, STALLED)
    for at in (0.5, 1.0, 2.0, 2.9):
        health.feed(STALLED, at)
    assert health.ejections == 1
    assert back(health, 2.9) <= 5.5


@given(st.lists(st.tuples(st.sampled_from([STALLED, EJECTED, PROBE_OK, REQUEST_OK]), st.floats(0, 20)), max_size=60))
def test_no_ejection_lasts_longer_than_the_most_and_none_is_shorter_than_the_first(
    told: list[tuple[Signal, float]],
) -> None:
    limits = Thresholds(eject_seconds=5.0, eject_most=30.0)
    health, now, out_at = after(PROBE_OK, limits=limits), 0.0, 0.0
    for signal, seconds in told:
        now += seconds
        before, state = health.feed(signal, now)
        if state is DOWN and signal in (STALLED, EJECTED):
            out_at = now if before is not DOWN else out_at
            assert health.ejections >= 1
        if before is DOWN and state is not DOWN:
            assert now - out_at >= 5.0
    while health.state is DOWN:
        now += 1.0
        health.feed(PROBE_OK, now)
    assert health.state in (READY, SUSPECT, TRIAL)


# Draining.


def test_a_draining_worker_stays_so_whatever_happens_until_it_is_told() -> None:
    health = after(PROBE_OK, DRAIN)
    for signal in (PROBE_OK, PROBE_FAILED, REQUEST_OK, REQUEST_FAILED) * 5:
        assert health.feed(signal, 0.0) == (DRAINING, DRAINING)
    health.feed(REQUEST_OK, 0.0)
    health.feed(PROBE_OK, 0.0)
    assert health.feed(UNDRAIN, 0.0) == (DRAINING, READY)


def test_a_worker_that_was_never_well_starts_when_it_need_not_drain() -> None:
    assert after(DRAIN, UNDRAIN).state is STARTING


def test_a_worker_that_died_while_draining_is_not_ready_when_it_need_not_drain() -> None:
    """It was restarted under the drain, say, and is not up yet."""
    health = after(PROBE_OK, DRAIN, *[PROBE_FAILED] * 5)
    health.feed(UNDRAIN, 0.0)
    assert health.state is not READY


def test_draining_does_not_end_a_breaker_s_hold() -> None:
    health = after(*BAD_REQUESTS, DRAIN, UNDRAIN)
    assert health.state is not READY


# Back-pressure.


def pressed(health: Health, now: float) -> bool:
    return now < health.pressed_until


def test_a_worker_that_asks_for_less_gets_less_for_half_a_second() -> None:
    health = after(PROBE_OK)
    assert not pressed(health, 10.0)
    health.press(10.0, None)
    assert pressed(health, 10.4)
    assert not pressed(health, 10.5)
    assert health.state is READY


def test_the_pause_doubles_while_it_goes_on_and_has_a_limit() -> None:
    health, pauses = after(PROBE_OK), []
    for at in range(7):
        health.press(at * 100.0, None)
        pauses.append(health.pressed_until - at * 100.0)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_longer_retry_after_is_honoured_up_to_the_limit() -> None:
    health = after(PROBE_OK)
    health.press(0.0, 3.0)
    assert pressed(health, 2.9)
    assert not pressed(health, 3.0)
    health.press(0.0, 3600.0)
    assert not pressed(health, 10.0)


def test_a_good_request_makes_the_next_pause_short_again() -> None:
    health = after(PROBE_OK)
    for _ in range(5):
        health.press(0.0, None)
    health.feed(REQUEST_OK, 50.0)
    health.press(100.0, None)
    assert not pressed(health, 100.5)


def test_a_later_word_never_shortens_the_pause() -> None:
    """Two answers come at once; the one with the long Retry-After first."""
    health = after(PROBE_OK)
    health.press(0.0, 8.0)
    health.press(0.1, None)
    assert pressed(health, 7.9)


@MANY
@given(
    st.lists(st.tuples(signals, st.floats(0, 10)), max_size=60),
    st.builds(Thresholds, unhealthy_after=st.integers(1, 4), healthy_after=st.integers(1, 4)),
)
def test_any_signals_keep_a_worker_in_a_legal_state(told: list[tuple[Signal, float]], limits: Thresholds) -> None:
    health, now = Health(limits), 0.0
    for signal, seconds in told:
        now += seconds
        before = health.state
        was, is_now = health.feed(signal, now)
        assert was is before
        assert is_now is health.state
        assert health.was_ready or health.state in (STARTING, DRAINING)
        assert health.failed_probes >= 0
        assert health.failed_requests >= 0
        if signal is DRAIN:
            assert health.state is DRAINING
        if signal in (PROBE_FAILED, REQUEST_FAILED):
            assert is_now is not READY or before is READY
        if signal in (PROBE_OK, REQUEST_OK):
            assert is_now is not DOWN or before is DOWN


@given(st.lists(st.tuples(st.floats(0, 100), st.none() | moments), max_size=30))
def test_a_pause_is_never_longer_than_its_limit(presses: list[tuple[float, float | None]]) -> None:
    health = after(PROBE_OK)
    for now, retry_after in sorted(presses, key=lambda press: press[0]):
        health.press(now, retry_after)
        assert now < health.pressed_until <= now + 10.0


def test_a_worker_s_health_shows_itself() -> None:
    assert repr(after(PROBE_OK, PROBE_FAILED)) == "<Health suspect, 1 probes and 0 requests failed>"
