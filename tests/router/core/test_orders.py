"""Orders that are put right when they are looked at."""

from random import Random

import pytest

from router.core.orders import Order, Requests, Sent, Work
from router.core.standing import Standing
from tests.support.churn import Churn

STEPS = 400


def standing_of(churn: Churn) -> Standing:
    return churn.fleet.candidates(None).standing


@pytest.mark.parametrize("even", [True, False], ids=["alike", "mixed"])
@pytest.mark.parametrize("kind", [Work, Requests, Sent])
def test_whatever_happens_an_order_is_that_of_sorting_anew(kind: type[Order], even: bool) -> None:
    churn = Churn(Random(1), 20, even=even)
    for _ in range(STEPS):
        churn.step()
        standing = standing_of(churn)
        kept = {Work: standing.by_work, Requests: standing.by_requests, Sent: standing.by_traffic}[kind]()
        if churn.dice.random() < 0.6:
            assert kept.rows() == sorted(kept.key(seat) for seat in churn.fleet.candidates(None))


@pytest.mark.parametrize("even", [True, False], ids=["alike", "mixed"])
def test_what_is_left_by_a_worker_s_pace_is_never_more_than_its_wait(even: bool) -> None:
    churn = Churn(Random(9), 20, even=even)
    for _ in range(STEPS):
        churn.step()
        churn.now += churn.dice.choice([0.0, 0.01])
        left = standing_of(churn).by_left(churn.now)
        fallen = left.fallen(churn.now)
        assert left.rows() == sorted(left.key(seat) for seat in churn.fleet.candidates(None))
        for row in left.rows():
            assert row[0] - fallen <= row[4].wait(churn.now) / row[4].speed + 1e-6
