"""Medians with their range, and ratios within a round."""

import pytest

from bench.path.figures import COLUMNS, Spread, by_round, gather, ratios, spread, troubles
from tests.bench.path.conftest import Made

BY_NAME = {column.name: column for column in COLUMNS}


def test_a_spread_has_the_median_and_both_ends() -> None:
    assert spread([3.0, 1.0, 10.0]) == Spread(3.0, 1.0, 10.0, 3)
    assert spread([1.0, 2.0]) == Spread(1.5, 1.0, 2.0, 2)


def test_a_spread_of_nothing_is_none() -> None:
    assert spread([]) is None


def test_ratios_are_taken_within_a_round() -> None:
    assert ratios({0: 10.0, 1: 40.0}, {0: 5.0, 1: 10.0}) == [2.0, 4.0]


def test_a_round_that_one_of_two_lacks_is_left_out() -> None:
    assert ratios({0: 10.0, 2: 9.0}, {1: 5.0, 2: 3.0}) == [3.0]


@pytest.mark.parametrize("divisor", [0.0, -2.0])
def test_a_divisor_that_is_not_above_zero_gives_no_ratio(divisor: float) -> None:
    assert ratios({0: 10.0}, {0: divisor}) == []


def test_the_median_of_ratios_is_no_ratio_of_medians(run: Made) -> None:
    ours = [run("ours", turn=turn, cpu_us=cpu) for turn, cpu in enumerate([10.0, 20.0, 100.0])]
    other = [run("nginx", turn=turn, cpu_us=cpu) for turn, cpu in enumerate([40.0, 20.0, 50.0])]
    times = gather([*ours, *other], "ours").times["nginx"]["cpu_json_2k"]
    assert times == Spread(1.0, 0.5, 4.0, 3)


def test_added_latency_is_less_what_the_upstream_takes_in_the_same_round(run: Made) -> None:
    runs = [
        run("direct", "one", 0, p50_us=20.0), run("direct", "one", 1, p50_us=50.0),
        run("ours", "one", 0, p50_us=120.0), run("ours", "one", 1, p50_us=130.0), run("ours", "one", 2, p50_us=1.0),
    ]  # fmt: skip
    assert by_round(runs, "ours", BY_NAME["added"]) == {0: 100.0, 1: 80.0}
    assert by_round(runs, "direct", BY_NAME["added"]) == {}


def test_a_column_has_the_runs_of_its_own_case_only(run: Made) -> None:
    runs = [run(case="sse", cpu_us=5.0), run(case="json-2k", cpu_us=50.0)]
    assert by_round(runs, "ours", BY_NAME["cpu_sse"]) == {0: 5.0}


def test_what_has_no_proxy_has_no_cpu_and_is_compared_with_nothing(run: Made) -> None:
    figures = gather([run("direct", cpu_us=None, resident=None), run("ours")], "ours")
    assert set(figures.found["direct"]) == {"requests", "p50_c64", "p99_c64"}
    assert figures.times == {}


def test_units_are_those_that_the_titles_say(run: Made) -> None:
    found = gather([run(requests=1000, seconds=2.0, p50_us=1500.0, resident=50_000_000)], "ours").found["ours"]
    assert found["requests"].median == 500.0
    assert found["p50_c64"].median == 1.5
    assert found["resident"].median == 50.0


def test_how_long_the_base_waited_is_the_median_of_its_runs(run: Made) -> None:
    runs = [run(turn=turn, waited=waited) for turn, waited in enumerate([0.1, 0.5, 0.2])]
    assert gather([*runs, run("nginx", waited=0.9)], "ours").waited == 0.2


def test_every_kind_of_trouble_is_told_with_its_place(run: Made) -> None:
    runs = [
        run(),
        run("nginx", "sse", 2, errors={"lost_events": 3, "status": 1}),
        run("smg", uncounted=-2),
        run("envoy", requests=0),
    ]
    assert troubles(runs) == [
        "nginx, sse, round 3: 3 lost events, 1 status",
        "smg, json-2k, round 1: -2 requests at the upstream",
        "envoy, json-2k, round 1: no answers",
    ]
