"""Whether to draft: judged by what it gained, kept apart by rows, tried again later and later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.medusa.switch import LEAST_GAIN, LONGEST_REST, SHORTEST_REST, Switch, trial


def until_off(switch: Switch, rows: int, gain: float, most: int = 1000) -> int:
    """Steps of drafting before it is off."""
    steps = 0
    while switch.on(rows) and steps < most:
        switch.learn(rows, gain, 1.0)
        steps += 1
    return steps


def resting(switch: Switch, rows: int) -> int:
    """Steps until it is on again, one of which `until_off` has asked for."""
    steps = 1
    while not switch.on(rows):
        steps += 1
    return steps


def test_it_is_on_at_first_and_stays_on_while_it_pays() -> None:
    switch = Switch()
    assert switch.gain(4) == LEAST_GAIN
    assert until_off(switch, 4, 1.2) == 1000
    assert switch.gain(4) == pytest.approx(1.2)


@given(st.floats(0.01, 1.02), st.integers(1, 64))
def test_it_goes_off_after_a_trial_that_did_not_pay(gain: float, rows: int) -> None:
    assert until_off(Switch(), rows, gain) == trial(rows)


def test_it_goes_off_when_it_ceases_to_pay() -> None:
    switch = Switch()
    until_off(switch, 1, 1.5, 200)
    assert 5 < until_off(switch, 1, 0.9) < 100


def test_one_bad_step_does_not_end_it() -> None:
    switch = Switch()
    until_off(switch, 1, 1.5, 200)
    switch.learn(1, 1.0, 3.0)
    assert switch.on(1)


def test_it_rests_twice_as_long_each_time_up_to_a_limit() -> None:
    switch, rests = Switch(), []
    for _ in range(7):
        assert until_off(switch, 8, 0.9) == trial(8)
        rests.append(resting(switch, 8))
    assert rests == [SHORTEST_REST, 128, 256, 512, LONGEST_REST, LONGEST_REST, LONGEST_REST]


def test_a_trial_that_paid_makes_the_next_rest_short_again() -> None:
    switch = Switch()
    for _ in range(3):
        until_off(switch, 8, 0.9)
        resting(switch, 8)
    until_off(switch, 8, 1.5, trial(8))
    until_off(switch, 8, 0.1)
    assert resting(switch, 8) == SHORTEST_REST


@pytest.mark.parametrize(("rows", "others"), [(1, [2, 3, 16]), (4, [1, 2, 5]), (8, [4, 9])])
def test_other_numbers_of_rows_are_judged_apart(rows: int, others: list[int]) -> None:
    switch = Switch()
    until_off(switch, rows, 0.5)
    assert not switch.on(rows)
    assert all(switch.on(other) for other in others)


def test_rows_between_two_powers_of_two_are_judged_together() -> None:
    switch = Switch()
    until_off(switch, 5, 0.5)
    assert not any(switch.on(rows) for rows in (5, 6, 7, 8))


def test_a_long_step_weighs_as_much_as_its_time() -> None:
    """Half the steps yield one token's worth in one second, half four in two: that is 5/3, not the mean of 1 and 2."""
    switch = Switch()
    for _ in range(300):
        switch.learn(1, 1.0, 1.0)
        switch.learn(1, 4.0, 2.0)
    assert switch.gain(1) == pytest.approx(5 / 3, rel=0.02)


def test_many_rows_are_judged_after_fewer_steps_than_one() -> None:
    assert [trial(rows) for rows in (1, 2, 4, 8, 16, 64)] == [32, 16, 8, 4, 4, 4]


def test_what_was_judged_last_is_told_while_it_rests() -> None:
    switch = Switch()
    until_off(switch, 8, 0.5)
    assert not switch.on(8)
    assert switch.gain(8) == pytest.approx(0.5)
