"""Dice, in proportion to weights."""

from collections import Counter
from random import Random

import pytest

from router.contracts import PolicyTools
from router.policies.random import Options, build
from tests.support.fleets import Look, ask_of, named, ring_of

ASK = ask_of(b"x" * 500)


def firsts(looks: list[Look], times: int = 4000) -> Counter[str]:
    policy = build(Options(), PolicyTools(ring_of([]), Random(3)))
    return Counter(next(iter(policy.order(ASK, looks, 0.0))).worker for _ in range(times))


def test_equal_workers_are_drawn_equally_often_whatever_their_load() -> None:
    counts = firsts([Look(name, in_flight=at * 100, waiting=at * 1e6) for at, name in enumerate(named(4))])
    assert all(counts[name] == pytest.approx(1000, rel=0.15) for name in named(4))


def test_twice_the_weight_is_drawn_twice_as_often() -> None:
    counts = firsts([Look("a", weight=2.0), Look("b"), Look("c")])
    assert counts["a"] == pytest.approx(2000, rel=0.1)


def test_the_second_is_drawn_as_well() -> None:
    policy = build(Options(), PolicyTools(ring_of([]), Random(3)))
    looks = [Look(name) for name in named(4)]
    seconds = Counter([each.worker for each in policy.order(ASK, looks, 0.0)][1] for _ in range(400))
    assert set(seconds) == set(named(4))
