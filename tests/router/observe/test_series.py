"""Counters and histograms in plain numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.observe.series import DECISION, SECONDS, Buckets, Counter, Histogram, cumulative


def test_every_name_begins_as_the_contract_says() -> None:
    assert Counter("x", "").name == Histogram("x", "").name == "prefix_router_x"


def test_a_counter_forgets_the_series_of_a_worker_wherever_the_label_stands() -> None:
    counter = Counter("x", "", "model", "worker")
    counter.values["m", "a"] += 1
    counter.values["n", "a"] += 1
    counter.values["a", "b"] += 1
    counter.forget("a")
    assert dict(counter.values) == {("a", "b"): 1}


def test_a_counter_counts_one_more() -> None:
    counter = Counter("x", "", "result")
    counter.add("well")
    counter.add("well")
    assert counter.numbers() == {("well",): [2]}


def test_a_counter_without_workers_forgets_nothing() -> None:
    counter = Counter("x", "", "model")
    counter.values[("a",)] += 1
    counter.forget("a")
    assert counter.values == {("a",): 1}


@pytest.mark.parametrize("bounds", [SECONDS, DECISION])
def test_bounds_rise(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


def test_waits_of_ten_minutes_have_a_bucket() -> None:
    assert SECONDS[-1] == 600


def test_a_value_on_a_bound_is_counted_up_to_it() -> None:
    buckets = Buckets((1, 2))
    for value in (1, 1.5, 2, 3):
        buckets.add(value)
    assert cumulative(buckets.bounds, buckets.counts) == [("1.0", 1), ("2.0", 3), ("+Inf", 4)]
    assert buckets.numbers() == [1, 2, 1, 7.5]


@given(st.lists(st.floats(0, 1000)))
def test_buckets_rise_and_the_last_one_has_all(values: list[float]) -> None:
    buckets = Buckets(SECONDS)
    for value in values:
        buckets.add(value)
    rows = [count for _, count in cumulative(SECONDS, buckets.counts)]
    assert rows == sorted(rows)
    assert rows[-1] == len(values)
    assert all(count == sum(v <= bound for v in values) for bound, count in zip(SECONDS, rows, strict=False))


def test_a_histogram_keeps_one_series_a_set_of_labels() -> None:
    histogram = Histogram("x", "", "model")
    assert histogram.at("m") is histogram.at("m")
    histogram.at("m").add(1000.0)
    assert histogram.numbers() == {("m",): [*[0] * len(SECONDS), 1, 1000.0]}
    assert histogram.at("n") is not histogram.at("m")
    assert set(histogram.series) == {("m",), ("n",)}


def test_a_counter_gives_its_numbers_in_the_form_of_all_series() -> None:
    counter = Counter("x", "", "model")
    counter.values["m",] += 2
    assert counter.numbers() == {("m",): [2.0]}
