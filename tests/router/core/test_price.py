"""What one prompt costs at a worker."""

from random import Random

import pytest

from router.core.price import EQUAL_SHARE, HOMEWARD, Price, Weights
from tests.support.churn import Churn
from tests.support.fleets import Look, ask_of

TEXT = b"\xffTuser\xfe" + b"a long beginning " * 240  # 4,088 bytes, 1,022 tokens
TOKENS = len(TEXT) / 4
USUAL = Weights(4.0, 0.5, 16.0)


def test_a_prompt_nobody_holds_costs_the_wait_and_its_share_of_the_traffic() -> None:
    price = Price(ask_of(TEXT), USUAL, None, 0, 100.0)
    assert price.cold
    assert price.at(Look("w0", waiting=7.0, traffic=50.0, speed=2.0), 0.0) == (7.0 + TOKENS * 0.5) / 2.0


def test_what_a_worker_holds_need_not_be_computed_there() -> None:
    price = Price(ask_of(TEXT, held={"w0": 3840}), USUAL, None, 3840, 100.0)
    assert not price.cold
    assert price.at(Look("w0"), 0.0) == 4.0 * (TOKENS - 960.0)
    assert price.at(Look("w1", waiting=10.0), 0.0) == 10.0 + 4.0 * TOKENS
    assert price.band == EQUAL_SHARE * TOKENS


def test_a_hot_part_costs_less_to_compute() -> None:
    price = Price(ask_of(TEXT, held={"w0": 3840}, hot_depth=2048), USUAL, None, 3840, 100.0)
    assert price.at(Look("w1"), 0.0) == pytest.approx(4.0 * (TOKENS - 512.0) + 0.5 * 512.0)


def test_a_home_that_is_trusted_holds_a_share_of_what_it_is_not_known_to() -> None:
    price = Price(ask_of(TEXT, trust=0.2), USUAL, "w0", 0, 100.0)
    assert price.at(Look("w0"), 0.0) == pytest.approx(4.0 * TOKENS * (1.0 - HOMEWARD * 0.2))
    assert price.at(Look("w1"), 0.0) == pytest.approx(4.0 * TOKENS)


def test_one_price_after_the_other_is_each_alone() -> None:
    looks = [Look("w0", waiting=3.0), Look("w1", traffic=9.0)]
    for ask in (ask_of(TEXT), ask_of(TEXT, held={"w1": 1024})):
        price = Price(ask, USUAL, None, max(ask.held.values(), default=0), 5.0)
        assert price.at_each(looks, 0.0) == [price.at(look, 0.0) for look in looks]


@pytest.mark.parametrize("weights", [USUAL, Weights(0.0, 0.0, 0.0), Weights(1.0, 6.0, 1.0), Weights(1e6, 0.0, 16.0)])
def test_at_whoever_holds_nothing_a_prompt_costs_no_less_than_its_bound_says(weights: Weights) -> None:
    churn = Churn(Random(8), 10, even=False)
    for _ in range(200):
        churn.step()
        ask = churn.ask()
        home = churn.fleet.ring.home(ask.key.value) if ask.trust else None
        price = Price(ask, weights, home, max(ask.held.values(), default=0), 700.0)
        for seat in churn.fleet.seats.values():
            if seat.id not in ask.held and seat.id != home:
                bound = (seat.wait(churn.now) + price.others + price.slope * seat.load.traffic) / seat.speed
                cost = price.at(seat, churn.now)
                assert bound * (1 - 1e-9) <= cost <= bound + 1e-6 * (1.0 + ask.prefix.tokens * weights.factor)
