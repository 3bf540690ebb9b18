"""Two scrapes make a frame's figures."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from router.top_samples import Samples
from router.top_view import DECISIONS, Scrape, as_object, view

WORKER = {
    "id": "w0", "state": "ready", "in_flight": 2, "outstanding_tokens": 500, "wait_tokens": 700,
    "prefill_tokens_per_second": 9000,
}  # fmt: skip
DECISION = {
    "worker": "w0", "reason": "home", "age_seconds": 0.4, "prompt_tokens": 1000, "predicted_cached_tokens": 800,
    "cached_tokens": 900,
}  # fmt: skip


def scrape(
    at: float, *metrics: str, workers: Sequence[dict[str, Any]] = (WORKER,), decisions: Sequence[dict[str, Any]] = ()
) -> Scrape:
    text = "".join(f"prefix_router_{line}\n" for line in metrics)
    return Scrape(at, workers, False, decisions, Samples(text))


def test_a_first_look_has_the_present_and_no_rates() -> None:
    shown = view(None, scrape(0.0, "queued 3", decisions=[DECISION]))
    row, totals = shown.workers[0], shown.totals
    assert shown.seconds is None
    assert (row.id, row.state, row.in_flight, row.outstanding_tokens, row.wait_tokens) == ("w0", "ready", 2, 500, 700)
    assert row.prefill_tokens_per_second == 9000
    assert (totals.workers_ready, totals.in_flight, totals.queued) == (1, 2, 3)
    assert (
        row.requests_per_second is totals.requests_per_second is totals.first_token_p50 is totals.cached_share is None
    )


def test_totals_are_of_the_time_between() -> None:
    before = scrape(10.0, "prompt_tokens_total 100", 'slo_requests_total{met="true"} 5', "requests_total 10")
    after = scrape(
        12.0, "prompt_tokens_total 1100", 'cached_tokens_total{worker="w0"} 250', "requests_total 30",
        'slo_requests_total{met="true"} 8', 'slo_requests_total{met="false"} 1',
    )  # fmt: skip
    totals = view(before, after).totals
    assert totals.requests_per_second == 10
    assert totals.cached_share == 0.25
    assert totals.slo_met_share == 0.75


def test_reasons_are_shares_the_largest_first() -> None:
    after = scrape(1.0, 'decisions_total{policy="p",reason="cold"} 1', 'decisions_total{policy="p",reason="home"} 3')
    shown = view(scrape(0.0), after)
    assert list(shown.totals.reasons.items()) == [("home", 0.75), ("cold", 0.25)]
    assert shown.policy == "p"


def test_a_workers_requests_are_its_share_of_all_decisions() -> None:
    """Only the latest decisions name workers, and a busy gateway makes more than it lists."""
    fresh = [DECISION] * 3 + [DECISION | {"worker": "w1"}]
    old = [DECISION | {"worker": "w1", "age_seconds": 30.0}] * 20
    after = scrape(2.0, "decisions_total 800", decisions=fresh + old)
    assert view(scrape(0.0), after).workers[0].requests_per_second == 300
    assert view(scrape(0.0), scrape(2.0)).workers[0].requests_per_second == 0


def test_expected_and_delivered_stand_side_by_side() -> None:
    metrics = (
        'predicted_cached_tokens_total{model="m",worker="w0"} 1000', 'cached_tokens_total{model="m",worker="w0"} 600',
        'cached_tokens_total{model="n",worker="w0"} 300', 'cached_tokens_total{model="m",worker="w1"} 9999',
    )  # fmt: skip
    row = view(None, scrape(0.0, *metrics)).workers[0]
    assert (row.predicted_cached_tokens, row.cached_tokens, row.prediction_ratio) == (1000, 900, 0.9)


def test_the_gateways_own_recent_ratio_goes_before() -> None:
    metrics = (
        'predicted_cached_tokens_total{worker="w0"} 1000', 'cached_tokens_total{worker="w0"} 600',
        'cached_prediction_ratio{worker="w0",model="m"} 0.95',
    )  # fmt: skip
    assert view(None, scrape(0.0, *metrics)).workers[0].prediction_ratio == 0.95


def test_a_workers_cached_share_is_of_its_latest_answers() -> None:
    """Those still running and those without usage say nothing; an estimate that is too low makes no 120%."""
    decisions = [DECISION, DECISION | {"cached_tokens": None}, DECISION | {"worker": "w1", "cached_tokens": 0}]
    assert view(None, scrape(0.0, decisions=decisions)).workers[0].cached_share == 0.9
    assert view(None, scrape(0.0, decisions=[DECISION | {"cached_tokens": 1200}])).workers[0].cached_share == 1.0
    assert view(None, scrape(0.0)).workers[0].cached_share is None


def test_failures_are_of_every_kind() -> None:
    metrics = (
        'worker_failures_total{worker="w0",kind="refused"} 2',
        'worker_failures_total{worker="w0",kind="reset"} 1',
    )
    assert view(None, scrape(0.0, *metrics)).workers[0].failures == 3


def test_a_shadow_policy_says_how_often_it_differs() -> None:
    metrics = (
        'shadow_decisions_total{policy="least_work",differs="true"} 1',
        'shadow_decisions_total{policy="least_work",differs="false"} 3',
    )
    assert view(None, scrape(0.0, *metrics)).totals.shadows == {"least_work": 0.25}
    assert view(None, scrape(0.0)).totals.shadows == {}


def test_saved_tokens_are_shown_where_they_are_counted() -> None:
    assert view(None, scrape(0.0, 'affinity_saved_tokens_total{model="m"} 12')).totals.saved_tokens == 12
    assert view(None, scrape(0.0)).totals.saved_tokens is None


def test_a_worker_of_another_version_may_lack_what_is_not_its_name() -> None:
    row = view(None, scrape(0.0, workers=[{"id": "w0"}])).workers[0]
    assert (row.in_flight, row.wait_tokens, row.prefill_tokens_per_second) == (0, 0, None)


def test_a_restart_between_two_scrapes_gives_no_negative_rate() -> None:
    shown = view(scrape(0.0, "requests_total 500"), scrape(1.0, "requests_total 4"))
    assert shown.totals.requests_per_second == pytest.approx(4)


def test_as_an_object_it_is_json_with_few_digits() -> None:
    shown = as_object(view(scrape(0.0), scrape(3.0, "requests_total 10", decisions=[DECISION] * 300)))
    assert json.loads(json.dumps(shown)) == shown
    assert shown["totals"]["requests_per_second"] == 3.3333
    assert len(shown["decisions"]) == DECISIONS
