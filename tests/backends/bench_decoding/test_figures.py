"""From runs to figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.bench_decoding.figures import Difference, Run, Spent, Spread, Trial, cost, figures, noise

seconds = st.floats(1e-3, 1e3)


def run(wall: float, cpu: float | None = None, tokens: int = 10, *, full: int = 0, steps: int = 5) -> Run:
    rest = Spent(wall / 2, None if cpu is None else cpu / 2, full) if full else Spent()
    return Run(Spent(wall, cpu, tokens), rest, steps, 2 * steps, 4 * steps, 1, [[1, 2]])


@given(seconds, seconds, seconds)
def test_a_speed_up_is_the_plain_mean_over_the_modes_own(before: float, own: float, after: float) -> None:
    found = figures([Trial(run(before), run(own), run(after))], ())
    assert found.wall.median == pytest.approx((before + after) / 2 / own)
    assert found.cpu is None
    assert found.speed_up == found.wall
    assert found.cpu_a_token is None


@given(seconds, st.integers(1, 100))
def test_half_the_seconds_or_twice_the_tokens_are_twice_the_speed(wall: float, tokens: int) -> None:
    plain = run(wall, tokens=tokens)
    assert figures([Trial(plain, run(wall / 2, tokens=tokens), plain)], ()).wall.median == pytest.approx(2)
    assert figures([Trial(plain, run(wall, tokens=2 * tokens), plain)], ()).wall.median == pytest.approx(2)


@given(st.lists(seconds, min_size=1, max_size=6))
def test_a_spread_holds_all_its_rounds(rounds: list[float]) -> None:
    spread = Spread(tuple(rounds))
    assert all(spread.low <= value <= spread.high for value in [*rounds, spread.median])


def test_a_spread_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one round"):
        Spread(())


def test_cpu_seconds_come_first_where_there_are_any() -> None:
    plain, own = run(4.0, 1.0, full=4), run(4.0, 0.5, full=4)
    found = figures([Trial(plain, own, plain)], ())
    assert (found.speed_up.median, found.wall.median) == (2.0, 1.0)
    assert found.full_speed_up is not None
    assert found.full_speed_up.median == 2.0
    assert found.full_share == 0.4
    assert (found.cpu_a_token, found.wall_a_token) == (0.05, 0.4)


def test_a_batch_that_was_never_full_has_no_such_figure() -> None:
    found = figures([Trial(run(1.0), run(1.0), run(1.0))], ())
    assert found.full_speed_up is None


def test_the_counts_are_over_all_rounds() -> None:
    different = Difference(0, 1, 0.5)
    found = figures([Trial(run(1.0), run(1.0, tokens=tokens), run(1.0)) for tokens in (10, 20)], [different])
    assert found.tokens_a_row_step == 30 / 20
    assert found.nodes_a_step == 4
    assert found.drafted == 2 / 10
    assert found.full_share == 0
    assert (found.rows, found.differing) == (2, (different,))


def test_runs_that_decoded_nothing_are_refused() -> None:
    empty = run(1.0, tokens=0)
    with pytest.raises(ValueError, match="nothing was decoded"):
        figures([Trial(empty, empty, empty)], ())


def test_plain_is_compared_with_the_plain_run_before() -> None:
    plains = [run(1.0), run(2.0), run(4.0)]
    assert noise(plains) == [Trial(plains[0], plains[1], plains[0]), Trial(plains[1], plains[2], plains[1])]


def test_what_took_no_time_or_made_no_token_has_no_cost() -> None:
    assert cost(None, 5) is None
    assert cost(1.0, 0) is None
    assert cost(1.0, 4) == 0.25
