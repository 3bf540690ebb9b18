"""Silence: what is one, how long it may be, and what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.load import PATIENCE, Load
from router.core.stalls import HALF_LIFE, LONGER, PLAIN, UNKNOWN, Silence

LEAST = 30.0


def paced(pace: float) -> Load:
    load = Load()
    load.learn_pace(pace, 1.0)
    return load


def test_a_worker_is_silent_while_a_request_waits_and_nothing_comes() -> None:
    silence = Silence(0.0)
    assert [silence.look(0, 3.0, now) for now in (5.0, 10.0, 33.0)] == [2.0, 7.0, 30.0]


def test_whatever_comes_ends_it() -> None:
    silence = Silence(0.0)
    silence.look(0, 0.0, 20.0)
    assert silence.look(1, 0.0, 21.0) == 0.0
    assert silence.look(1, 0.0, 25.0) == 4.0


def test_one_that_nobody_asks_is_not_silent() -> None:
    silence = Silence(0.0)
    assert silence.look(0, None, 1000.0) == 0.0
    assert silence.look(0, 1000.0, 1010.0) == 10.0, "the time before the request does not count"


def test_a_stream_on_a_worker_whose_pace_is_known_has_the_least_time() -> None:
    allowed = Silence(0.0).allowed(LEAST, paced(10_000.0), 1000.0, streaming=True, now=0.0)
    assert allowed == LEAST


def test_a_long_prompt_on_a_slow_worker_is_no_stall() -> None:
    allowed = Silence(0.0).allowed(LEAST, paced(500.0), 100_000.0, streaming=True, now=0.0)
    assert allowed == PATIENCE * 200.0


@pytest.mark.parametrize("told_by", ["queue", "siblings", "replica"])
def test_what_others_wait_for_there_counts(told_by: str) -> None:
    load = paced(1000.0)
    if told_by == "queue":
        load.queued, load.queue_until = 50_000.0, 10.0
    elif told_by == "siblings":
        load.charged_elsewhere = 50_000.0
    else:
        load.remote["r"] = 5, 50_000.0, 10.0
    assert Silence(0.0).allowed(LEAST, load, 0.0, streaming=True, now=5.0) == PATIENCE * 50.0
    if told_by != "siblings":
        assert Silence(0.0).allowed(LEAST, load, 0.0, streaming=True, now=11.0) == LEAST, "that was long ago"


def test_a_worker_whose_pace_is_unknown_has_longer() -> None:
    """It may never have answered: it is loading, or compiling."""
    assert Silence(0.0).allowed(LEAST, Load(), 10.0, streaming=True, now=0.0) == UNKNOWN * LEAST


def test_answers_in_one_piece_come_late() -> None:
    assert Silence(0.0).allowed(LEAST, paced(10_000.0), 10.0, streaming=False, now=0.0) == PLAIN * LEAST


def test_a_worker_that_was_silent_for_long_and_went_on_has_longer_the_next_time() -> None:
    silence, load = Silence(0.0), paced(10_000.0)
    silence.look(0, 0.0, 100.0)
    silence.look(1, 0.0, 101.0)
    assert silence.allowed(LEAST, load, 10.0, streaming=True, now=101.0) == pytest.approx(LONGER * 100.0, rel=0.01)


def test_that_is_forgotten_in_time() -> None:
    silence = Silence(0.0)
    silence.look(0, 0.0, 100.0)
    silence.look(1, None, 100.0)
    silence.look(1, None, 100.0 + HALF_LIFE)
    assert silence.record == pytest.approx(50.0)


def test_the_time_in_which_nobody_could_listen_is_not_its_silence() -> None:
    silence = Silence(0.0)
    silence.look(0, 0.0, 10.0)
    silence.excuse(500.0)
    assert silence.look(0, 0.0, 511.0) == 11.0


@given(st.lists(st.tuples(st.floats(0, 50), st.booleans(), st.booleans()), max_size=50))
def test_silence_never_exceeds_the_time_since_something_came(beats: list[tuple[float, bool, bool]]) -> None:
    silence, now, reads, heard = Silence(0.0), 0.0, 0, 0.0
    for seconds, came, waits in beats:
        now += seconds
        reads += came
        heard = now if came else heard
        seen = silence.look(reads, 0.0 if waits else None, now)
        assert 0.0 <= seen <= now - heard + 1e-9
        assert seen == 0.0 or waits
        assert silence.record >= 0.0


def test_it_shows_itself() -> None:
    silence = Silence(0.0)
    silence.look(0, 0.0, 2.0)
    assert repr(silence) == "<Silence of 2.0 s, at most 0.0 of late>"
