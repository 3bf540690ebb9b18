"""What came out of a run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.replay.figures import NUMBERS, averaged, figures, inside_target, quantile, spread_of
from router.replay.item import BLOCK
from router.replay.simulate import Setup, Simulation
from tests.support.replays import request, routed


def run(count: int = 20, workers: int = 1) -> Simulation:
    return routed([request([1, 2, 10 + at], due=at * 1.0) for at in range(count)], Setup(workers=workers))


def test_the_warm_up_is_not_counted() -> None:
    found = figures(run())
    assert found.requests == 18
    assert found.hit_share == pytest.approx(2 / 3)
    assert figures(run(), 0.0).hit_share == pytest.approx(19 * 2 / 60)


def test_a_window_is_a_part_of_the_trace_and_never_empty() -> None:
    assert figures(run(), 0.5, 0.6).requests == 2
    assert figures(run(1), 0.5, 0.6).requests == 1


def test_busy_is_prefill_until_the_last_first_token() -> None:
    done = run()
    found = figures(done)
    assert found.busy == pytest.approx(done.workers[0].busy / done.requests[-1].first)
    assert found.imbalance == 1.0


def test_imbalance_is_the_busiest_against_the_mean_of_those_that_are_there() -> None:
    done = run(workers=2)
    busy = [worker.busy for worker in done.workers]
    assert figures(done).imbalance == pytest.approx(max(busy) / (sum(busy) / 2))
    done.workers[0].alive = False
    assert figures(done).imbalance == 1.0


def test_reasons_are_counted() -> None:
    assert sum(figures(run()).reasons.values()) == 18


def test_the_target_is_two_seconds_or_twice_the_prompt_alone() -> None:
    done = run(1)
    (short,) = done.requests
    short.at, short.first = 0.0, 1.99
    assert inside_target(short, done)
    short.first = 2.01
    assert not inside_target(short, done)
    long = request([1], tokens=100_000)
    long.first = 10.0
    assert inside_target(long, done)
    long.first = 10.02
    assert not inside_target(long, done)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20).map(sorted), st.floats(0, 1))
def test_a_quantile_lies_between_its_neighbours(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert values[0] <= found + 1e-9
    assert found <= values[-1] + 1e-9


def test_the_median_of_two_is_their_middle() -> None:
    assert quantile([1.0, 3.0], 0.5) == 2.0


def test_runs_are_averaged_and_their_spread_is_kept() -> None:
    one, other = figures(run(20)), figures(run(40))
    mean = averaged([one, other])
    assert mean.requests == one.requests + other.requests
    assert mean.hit_share == pytest.approx((one.hit_share + other.hit_share) / 2)
    assert sum(mean.reasons.values()) == mean.requests
    low, high = spread_of([one, other])["busy"]
    assert low <= mean.busy <= high
    assert set(spread_of([one])) == set(NUMBERS)


def test_no_prefill_is_no_imbalance() -> None:
    done = run(1)
    done.workers[0].busy = 0.0
    done.requests[0].first = 0.0
    assert (figures(done).imbalance, figures(done).busy) == (1.0, 0.0)
    assert BLOCK == 512
