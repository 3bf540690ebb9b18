"""What a step costs here, measured."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from backends.medusa.calibration import SIZES, calibrate, clock_for, one_pass
from backends.medusa.kv import Pass, Slab, Span
from tests.support.tiny_worker import network


class Meter:
    """A clock that moves with the work: as the network is called, by what the call is made to cost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cost: Callable[[int, int, int], float]) -> None:
        self.now = 0.0
        forward = network().forward

        def measured(tokens: torch.Tensor, positions: torch.Tensor, keeper: Pass) -> Any:
            rows = len(keeper._parts)
            self.now += cost(rows, len(tokens), int(positions.min()))
            return forward(tokens, positions, keeper)

        monkeypatch.setattr(network(), "forward", measured)

    def __call__(self) -> float:
        return self.now


def slab_of(rows: int = 8, length: int = 128) -> Slab:
    llama = network()
    return Slab(llama.shape, rows, length, llama.dtype, llama.device)


def test_it_finds_the_curve_the_cost_of_a_row_and_that_of_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Meter(
        monkeypatch, lambda rows, tokens, seen: 1 + 0.1 * max(0, tokens - 4) + 0.05 * rows + 0.001 * tokens * seen
    )
    costs = calibrate(network(), slab_of(), meter)
    assert costs.per_row == pytest.approx(0.05)
    assert costs.per_seen == pytest.approx(0.001)
    assert costs.curve.at(2) == pytest.approx(1.05)
    assert costs.curve.at(64) == pytest.approx(7.05)


def test_a_hiccup_neither_bends_the_curve_down_nor_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(1000))
    meter = Meter(monkeypatch, lambda rows, tokens, seen: 1 + 50 * (next(calls) % 3 == 1))
    costs = calibrate(network(), slab_of(), meter)
    assert list(costs.curve.seconds) == [1.0] * len(SIZES)
    assert costs.per_row == costs.per_seen == 0


def test_seats_are_given_back_also_when_measuring_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    slab = slab_of(rows=3)
    calibrate(network(), slab, time.perf_counter)
    assert slab.seats == 3
    monkeypatch.setattr(network(), "forward", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        calibrate(network(), slab, time.perf_counter)
    assert slab.seats == 3


def test_a_pass_takes_time() -> None:
    assert one_pass(network(), slab_of(), [Span(0, 0, 4)], time.perf_counter) > 0


def test_one_thread_is_measured_by_its_own_time_and_more_by_the_wall() -> None:
    assert clock_for("cpu", 1) is time.thread_time
    assert clock_for("cpu", 2) is time.perf_counter
    assert clock_for("cuda", 1) is time.perf_counter
