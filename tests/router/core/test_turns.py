"""Whose turn it is among tenants."""

from collections import defaultdict
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.turns import QUANTUM, Turns


class One:
    """One that waits. Whether two are equal is whether they are the same."""

    def __init__(
        self, number: int, tenant: str | None = None, tokens: float = 100.0, weight: float = 1.0, lane: Hashable = None
    ) -> None:
        self.number, self.tenant, self.tokens, self.weight, self.lane = number, tenant, tokens, weight, lane

    def __repr__(self) -> str:
        return f"{self.tenant}{self.number}"


def turns_of(*ones: One) -> Turns[One]:
    turns: Turns[One] = Turns()
    for one in ones:
        turns.add(one)
    return turns


def drain(turns: Turns[One], most: int = 10_000) -> list[One]:
    """Serve them all, or so many."""
    out: list[One] = []
    while len(out) < most and (one := turns.next()) is not None:
        turns.remove(one, served=True)
        out.append(one)
    return out


def test_of_one_tenant_the_first_to_come_goes_first() -> None:
    ones = [One(at, tokens=5000.0 - at) for at in range(10)]
    assert drain(turns_of(*ones)) == ones


def test_nobody_waits_no_turn() -> None:
    assert turns_of().next() is None
    assert len(turns_of()) == 0


def test_equal_tenants_get_equally_many_tokens_whatever_the_length_of_their_prompts() -> None:
    long = [One(at, "long", 2000.0) for at in range(100)]
    short = [One(100 + at, "short", 100.0) for at in range(2000)]
    out = drain(turns_of(*long, *short), 500)
    got = {name: sum(one.tokens for one in out if one.tenant == name) for name in ("long", "short")}
    assert abs(got["long"] - got["short"]) <= 2 * QUANTUM + 2000 + 100


def test_a_turn_stays_until_it_is_used() -> None:
    turns = turns_of(One(1, "a", 900.0), One(2, "b", 900.0))
    first = turns.next()
    assert first is not None
    assert all(turns.next() is first for _ in range(20))


def test_shut_lanes_and_those_passed_over_are_left_out() -> None:
    ones = [One(1, "a", lane="x"), One(2, "a", lane="y"), One(3, "b", lane="x"), One(4, "b", lane="y")]
    turns = turns_of(*ones)
    assert turns.next(shut={"x", "y"}) is None
    found = turns.next(shut={"x"})
    assert found is ones[1]
    assert turns.next(shut={"x"}, passed={ones[1], ones[3]}) is None
    assert turns.next(passed=set(ones[:2])) is ones[2]


def test_a_lane_s_own_order_is_kept_among_lanes() -> None:
    ones = [One(at, "a", lane=at % 3) for at in range(9)]
    assert drain(turns_of(*ones)) == ones


def test_very_long_prompts_and_very_small_weights_take_no_time() -> None:
    turns = turns_of(*[One(at, str(at), 1e9, 0.001 + at) for at in range(50)])
    assert len(drain(turns)) == 50


def test_how_many_go_before_a_newcomer() -> None:
    turns = turns_of(*[One(at, "a") for at in range(10)], *[One(10 + at, "b", weight=2.0) for at in range(10)])
    assert turns.ahead("a", 1.0, None) == 20
    assert turns.ahead("b", 2.0, None) == pytest.approx(10 + 5.5)
    assert turns.ahead("c", 1.0, None) == pytest.approx(1 + 2)
    assert turns.ahead("c", 1.0, "another lane") == 0
    assert (turns.count(None), turns.count("another lane")) == (20, 0)


def test_the_heaviest_tenant_and_its_last() -> None:
    ones = [One(1, "a"), One(2, "a", lane="x"), One(3, "a"), One(4, "b", weight=9.0), One(5, "b", weight=9.0)]
    turns = turns_of(*ones)
    assert turns.heaviest() == ("a", 3.0)
    assert turns.last_of("a") is ones[2]
    assert (turns.count_of("b"), turns.count_of("nobody")) == (2, 0)


WAITING = st.lists(
    st.tuples(st.sampled_from("abc"), st.floats(1.0, 3000.0), st.sampled_from(["x", "y"])), min_size=1, max_size=80
)
WEIGHTS = st.fixed_dictionaries({name: st.floats(0.1, 10.0) for name in "abc"})


@given(WAITING, WEIGHTS, st.lists(st.booleans(), max_size=80))
def test_each_leaves_exactly_once_whether_served_or_not(
    waiting: list[Any], weights: dict[str, float], gone: list[bool]
) -> None:
    ones = [One(at, name, tokens, weights[name], lane) for at, (name, tokens, lane) in enumerate(waiting)]
    turns = turns_of(*ones)
    left = []
    for one, goes in zip(ones, gone, strict=False):
        if goes:
            turns.remove(one, served=False)
            left.append(one)
    out = drain(turns)
    assert sorted(one.number for one in out + left) == list(range(len(ones)))
    assert len(turns) == 0
    for name in "abc":
        numbers = [one.number for one in out if one.tenant == name]
        assert numbers == sorted(numbers)


@given(WAITING, WEIGHTS)
def test_while_two_tenants_wait_their_shares_differ_by_no_more_than_a_turn_and_a_prompt_each(
    waiting: list[Any], weights: dict[str, float]
) -> None:
    ones = [One(at, name, tokens, weights[name], lane) for at, (name, tokens, lane) in enumerate(waiting)]
    turns = turns_of(*ones)
    most = max(one.tokens for one in ones)
    left: defaultdict[str, int] = defaultdict(int)
    for one in ones:
        left[str(one.tenant)] += 1
    got: defaultdict[str, float] = defaultdict(float)
    both = {name for name in "abc" if left[name]}
    while (one := turns.next()) is not None:
        turns.remove(one, served=True)
        name = str(one.tenant)
        got[name] += one.tokens / one.weight
        left[name] -= 1
        both -= {name for name in both if not left[name]}
        for a in both:
            for b in both:
                bound = 2 * QUANTUM + most / weights[a] + most / weights[b]
                assert abs(got[a] - got[b]) <= bound + 1e-6
