"""Prometheus text read back, and what was counted between two readings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from router.observe.series import SECONDS
from router.top_samples import Between, Samples


def written(*metrics: str) -> Samples:
    return Samples("".join(f"prefix_router_{line}\n" for line in metrics))


def test_samples_are_read_by_name_and_label() -> None:
    samples = written('in_flight{worker="a"} 3.0', 'in_flight{worker="b"} 4', "queued 2.0")
    assert samples.total("in_flight") == 7
    assert samples.total("in_flight", worker="b") == 4
    assert samples.total("queued") == 2
    assert samples.by("worker", "in_flight") == {"a": 3, "b": 4}


def test_what_is_not_there_counts_nothing() -> None:
    samples = written("queued 2.0")
    assert samples.total("panic") == 0
    assert samples.mean("panic") is None
    assert "panic" not in samples
    assert "queued" in samples


def test_lines_that_are_no_samples_of_the_gateway_are_passed_over() -> None:
    lines = "# HELP prefix_router_queued x", "", "process_cpu_seconds_total 4", "prefix_router_queued", "x soon"
    assert Samples("\n".join(lines)).total("queued") == 0


def test_a_mean_leaves_out_what_is_no_number() -> None:
    samples = written('r{worker="a",model="x"} 0.5', 'r{worker="a",model="y"} 1.0', 'r{worker="b"} NaN')
    assert samples.mean("r", worker="a") == 0.75
    assert samples.mean("r", worker="b") is None


@given(st.text(max_size=30), st.floats(0, 1e12))
def test_whatever_prometheus_writes_is_read_as_it_was(label: str, value: float) -> None:
    """Quotes, backslashes, line ends and braces in a label's value, and any number."""
    registry = CollectorRegistry()
    gauge = Gauge("prefix_router_in_flight", "x", ["worker", "kind"], registry=registry)
    label = label.encode("utf-8", "replace").decode()
    gauge.labels(label, "k").set(value)
    samples = Samples(generate_latest(registry).decode())
    assert list(samples.each("in_flight")) == [({"worker": label, "kind": "k"}, value)]


def test_rates_are_of_the_time_between() -> None:
    before, after = (
        written('requests_total{code="200"} 10'),
        written('requests_total{code="200"} 30', 'requests_total{code="500"} 5'),
    )
    span = Between(before, after, 2.0)
    assert span.counted("requests_total") == 25
    assert span.rate("requests_total", code="200") == 10
    assert span.by("code", "requests_total") == {"200": 20, "500": 5}


def test_a_counter_that_went_down_began_anew() -> None:
    """The gateway was restarted between the two."""
    span = Between(written('requests_total{code="200"} 1000'), written('requests_total{code="200"} 7'), 1.0)
    assert span.counted("requests_total") == 7


def test_a_reason_that_nothing_happened_for_is_left_out() -> None:
    same = written('decisions_total{reason="home"} 3')
    assert Between(same, same, 1.0).by("reason", "decisions_total") == {}


def histogram(*values: float) -> Samples:
    registry = CollectorRegistry()
    made = Histogram("prefix_router_first_token_seconds", "x", ["model"], registry=registry, buckets=SECONDS)
    made.labels("m")
    for value in values:
        made.labels("m").observe(value)
    return Samples(generate_latest(registry).decode())


def test_a_quantile_lies_within_its_bucket() -> None:
    span = Between(histogram(), histogram(0.03, 0.03, 0.03, 0.03, 0.2), 1.0)
    assert span.quantile("first_token_seconds", 0.5) == pytest.approx(0.025 + 0.025 * 2.5 / 4)
    assert 0.1 < (span.quantile("first_token_seconds", 0.95) or 0) <= 0.25


def test_only_what_came_between_counts_for_a_quantile() -> None:
    span = Between(histogram(9, 9, 9), histogram(9, 9, 9, 0.001), 1.0)
    assert (span.quantile("first_token_seconds", 0.9) or 1) <= 0.005


def test_without_an_observation_there_is_no_quantile() -> None:
    assert Between(histogram(1), histogram(1), 1.0).quantile("first_token_seconds", 0.5) is None
    assert Between(written(), written(), 1.0).quantile("first_token_seconds", 0.5) is None


def test_beyond_the_last_bound_a_quantile_is_that_bound() -> None:
    assert Between(histogram(), histogram(4000.0), 1.0).quantile("first_token_seconds", 0.5) == SECONDS[-1]


@given(st.lists(st.floats(0, 500), min_size=1, max_size=40))
def test_quantiles_never_fall(values: list[float]) -> None:
    span = Between(histogram(), histogram(*values), 1.0)
    found = [span.quantile("first_token_seconds", share / 10) or 0.0 for share in range(1, 10)]
    assert found == sorted(found)


def test_a_counter_of_prometheus_is_read_with_its_ending() -> None:
    registry = CollectorRegistry()
    Counter("prefix_router_requests", "x", registry=registry).inc(3)
    assert Samples(generate_latest(registry).decode()).total("requests_total") == 3
