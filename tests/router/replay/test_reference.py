"""The yardstick knows all."""

import pytest

from router.replay.item import BLOCK
from router.replay.reference import REASON, Reference
from router.replay.workers import SimulatedWorker, Timing
from tests.support.replays import request


@pytest.fixture
def pair() -> list[SimulatedWorker]:
    return [SimulatedWorker(name, 100 * BLOCK, Timing(), foresight=True) for name in ("w0", "w1")]


def reference(pair: list[SimulatedWorker], beta: float = 2.0) -> Reference:
    made = Reference(beta)
    made.members(pair, 0.0)
    return made


def test_the_first_of_equals_is_chosen_and_the_reason_given(pair: list[SimulatedWorker]) -> None:
    sent = request([1])
    assert reference(pair).send(sent, 0.0) == "w0"
    assert sent.reason == REASON


def test_it_goes_where_the_beginning_is_cached(pair: list[SimulatedWorker]) -> None:
    pair[1].cache.touch([1, 2], [BLOCK, 2 * BLOCK])
    assert reference(pair).send(request([1, 2, 3]), 0.0) == "w1"


def test_it_goes_elsewhere_when_waiting_costs_more_than_computing(pair: list[SimulatedWorker]) -> None:
    pair[1].cache.touch([1, 2], [BLOCK, 2 * BLOCK])
    for names in range(100, 110):
        pair[1].enqueue(request([names]))
    assert reference(pair).send(request([1, 2, 3]), 0.0) == "w0"
    assert reference(pair, beta=100.0).send(request([1, 2, 3]), 0.0) == "w1"


def test_it_notices_nothing_and_tells_nothing(pair: list[SimulatedWorker]) -> None:
    knowing = reference(pair)
    sent = request([1])
    knowing.first_token(sent, 0.0)
    knowing.finished(sent, 0.0)
    knowing.lost(sent, 0.0)
    knowing.look(pair, 0.0, 1.0)
    knowing.hear("another", [], [], 60.0)
    assert knowing.news() == []
    assert knowing.loads(0.0) == []
