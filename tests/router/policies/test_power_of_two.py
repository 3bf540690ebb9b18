"""Of two workers drawn at random, the one with fewer requests."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from router.contracts import PolicyTools
from router.policies.power_of_two import Options, build
from tests.support.fleets import Look, ask_of, named, ring_of

ASK = ask_of(b"x" * 500)


class Scripted:
    """Dice that fall as told."""

    def __init__(self, *draws: str) -> None:
        self.draws = draws

    def sample(self, candidates: Sequence[Any], count: int) -> list[Any]:
        assert count == min(2, len(candidates))
        return [each for each in candidates if each.id in self.draws]


def first(dice: Any, looks: list[Look]) -> str:
    policy = build(Options(), PolicyTools(ring_of([]), dice))
    return next(iter(policy.order(ASK, looks, 0.0))).worker


def test_of_the_two_drawn_the_less_busy_wins_though_a_third_is_idle() -> None:
    looks = [Look("a", in_flight=5), Look("b", in_flight=3), Look("c")]
    assert first(Scripted("a", "b"), looks) == "b"
    assert first(Scripted("a", "c"), looks) == "c"


def test_those_that_were_not_drawn_follow() -> None:
    looks = [Look("a", in_flight=5), Look("b", in_flight=3), Look("c"), Look("d", in_flight=1)]
    policy = build(Options(), PolicyTools(ring_of([]), Scripted("a", "b")))
    assert [each.worker for each in policy.order(ASK, looks, 0.0)] == ["b", "a", "c", "d"]


def test_the_busiest_of_all_is_never_first() -> None:
    looks = [Look(name, in_flight=at) for at, name in enumerate(named(6))]
    policy = build(Options(), PolicyTools(ring_of([]), Random(1)))
    firsts = Counter(next(iter(policy.order(ASK, looks, 0.0))).worker for _ in range(500))
    assert "w5" not in firsts
    assert set(firsts) == set(named(5))
