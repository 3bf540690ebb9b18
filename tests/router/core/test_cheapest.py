"""The order by cost without looking at everybody is the order of looking at everybody."""

from collections.abc import Callable
from random import Random

import pytest

from router.contracts import Policy, PolicyTools
from router.core.fleet import Fleet
from router.core.slo import Slo
from router.core.standing import SMALL
from router.plugins import build_policy
from router.types import Reason
from tests.support import plain_rule
from tests.support.churn import Churn
from tests.support.fleets import ask_of, fleet_of

Wait = Callable[[float], float]
TIGHT = Slo(0.05, 0.0002)  # a promise that is often broken


@pytest.mark.parametrize("slo", [None, Slo(), TIGHT], ids=["nothing promised", "usual promise", "tight promise"])
@pytest.mark.parametrize("even", [True, False], ids=["alike", "mixed"])
@pytest.mark.parametrize("workers", [1, 3, SMALL, SMALL + 1, 50])
def test_whatever_happens_to_a_fleet_the_order_is_that_of_looking_at_everybody(
    workers: int, even: bool, slo: Slo | None
) -> None:
    dice = Random(workers)
    churn = Churn(dice, workers, even=even)
    policy = build_policy("prefix_cost", {}, PolicyTools(churn.fleet.ring, dice, slo))
    for _ in range(150):
        churn.step()
        for _ in range(2):
            ask, candidates = churn.ask(), churn.fleet.candidates(None)
            expected = (
                plain_rule.prefix_cost(ask, [*candidates], churn.now, churn.fleet.ring, slo) if candidates else []
            )
            assert list(policy.order(ask, candidates, churn.now)) == expected
            assert list(policy.order(ask, [*candidates], churn.now)) == expected


# Of many workers few are looked at.

TEXT = b"\xffTuser\xfe" + b"a long beginning " * 240  # 4,088 bytes, 1,022 tokens


def policy_of(fleet: Fleet) -> Policy:
    return build_policy("prefix_cost", {}, PolicyTools(fleet.ring, Random(0)))


class Counted:
    """Counts whose waits are asked for."""

    def __init__(self, fleet: Fleet) -> None:
        self.asked: list[str] = []
        for seat in fleet.seats.values():
            seat.wait = self._counting(seat.id, seat.load.wait)

    def _counting(self, name: str, wait: Wait) -> Wait:
        def counted(now: float) -> float:
            self.asked.append(name)
            return wait(now)

        return counted


def varied(workers: int = 200) -> Fleet:
    """All busy with something, none like the other."""
    dice, fleet = Random(1), fleet_of(workers)
    for seat in fleet.seats.values():
        seat.load.learn_pace(10_000.0, 1.0)
        seat.load.carry(float(dice.randrange(100_000, 200_000)))
        for _ in range(dice.randrange(1, 4)):
            seat.load.charge(float(dice.randrange(100, 8000)), dice.random(), streaming=True)
    return fleet


def test_of_a_prompt_that_is_held_the_holders_are_looked_at_and_nobody_else() -> None:
    fleet = varied()
    counted = Counted(fleet)
    fleet.seats["w7"].load.charge(10.0, 1.0, streaming=True)
    for held in ({"w7": 36_000}, {"w7": 36_000, "w9": 36_000, "gone": 36_000}):
        counted.asked.clear()
        first = next(policy_of(fleet).order(ask_of(TEXT * 9, held=held), fleet.candidates(None), 1.0))
        assert first.worker in held
        assert set(counted.asked) <= set(held)


@pytest.mark.parametrize("hot_depth", [0, 512])
@pytest.mark.parametrize("busy", [False, True])
def test_of_a_prompt_that_nobody_holds_few_are_looked_at(busy: bool, hot_depth: int) -> None:
    fleet = varied() if busy else fleet_of(200)
    counted = Counted(fleet)
    for at in range(50):
        ask = ask_of(b"%d" % at + TEXT, at, hot_depth=hot_depth)
        first = next(policy_of(fleet).order(ask, fleet.candidates(None), 1.0))
        assert first.reason == Reason.COLD
        if not busy:
            fleet.seats[first.worker].load.carry(ask.prefix.tokens)
    assert len(counted.asked) < 50 * 60


def test_among_all_that_are_within_one_percent_the_nearest_on_the_ring_is_first_be_they_few_or_many() -> None:
    for equals in (1, 2, 3, 8, 20, 60, 200):
        dice, fleet = Random(equals), fleet_of(200)
        low = dice.sample(sorted(fleet.seats), equals)
        for seat in fleet.seats.values():
            seat.load.carry(1000.0 + dice.randrange(10) if seat.id in low else 1100.0 + dice.randrange(1000))
        for at in range(40):
            ask = ask_of(b"%d" % at + TEXT, at)
            first = next(policy_of(fleet).order(ask, fleet.candidates(None), 0.0))
            assert first.worker == next(name for name in fleet.ring.walk(ask.key.value) if name in low)
