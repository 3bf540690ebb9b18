"""What `prefix-router top` shows, made of two scrapes of a running gateway. Pure: no clock, no network, no terminal.

Rates, shares and times are of the time between the two; where there is only one scrape they are None. A worker's
requests a second are its share of the latest decisions times all decisions a second, since no metric counts requests
by worker. Tokens expected and delivered are sums since the gateway's start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from router.top_samples import Between, Samples

DECISIONS = 100  # of the latest, as many go into a frame


@dataclass(frozen=True, slots=True)
class Scrape:
    """What a gateway said, all at about one moment, `at` seconds of the caller's clock."""

    at: float
    workers: Sequence[Mapping[str, Any]]
    panic: bool
    decisions: Sequence[Mapping[str, Any]]
    samples: Samples


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker now. `cached_share`: of the prompt tokens of its latest finished requests.

    `predicted_cached_tokens` were expected in its cache when it was chosen, `cached_tokens` it said it had there.
    `prediction_ratio` is delivered over predicted, of the last minutes where the gateway tells that.
    """

    id: str
    state: str
    in_flight: int
    outstanding_tokens: int
    wait_tokens: int
    prefill_tokens_per_second: float | None
    requests_per_second: float | None
    cached_share: float | None
    predicted_cached_tokens: int
    cached_tokens: int
    prediction_ratio: float | None
    failures: int


@dataclass(frozen=True, slots=True)
class Totals:
    """All workers together. `reasons`: shares of the decisions; `shadows`: by policy, how often it would have gone
    elsewhere. `saved_tokens`: delivered from caches beyond what would have been there anyhow, since the start."""

    workers_ready: int
    in_flight: int
    queued: int
    requests_per_second: float | None
    first_token_p50: float | None
    first_token_p90: float | None
    cached_share: float | None
    slo_met_share: float | None
    reasons: Mapping[str, float]
    shadows: Mapping[str, float]
    saved_tokens: int | None


@dataclass(frozen=True, slots=True)
class View:
    """One frame. `seconds`: the time it is about, None for a first look."""

    seconds: float | None
    panic: bool
    policy: str | None
    workers: tuple[WorkerRow, ...]
    totals: Totals
    decisions: tuple[Mapping[str, Any], ...]


def view(before: Scrape | None, after: Scrape) -> View:
    span = None if before is None else Between(before.samples, after.samples, after.at - before.at)
    policies = after.samples.by("policy", "decisions_total")
    return View(
        seconds=span.seconds if span else None,
        panic=after.panic,
        policy=max(policies, key=lambda name: policies[name]) if policies else None,
        workers=tuple(_row(worker, after, span) for worker in after.workers),
        totals=_totals(after, span),
        decisions=tuple(after.decisions[:DECISIONS]),
    )


def as_object(shown: View) -> dict[str, Any]:
    """For JSON, fractions with four digits."""
    rounded: dict[str, Any] = _rounded(asdict(shown))
    return rounded


def _row(worker: Mapping[str, Any], scrape: Scrape, span: Between | None) -> WorkerRow:
    name, samples = str(worker["id"]), scrape.samples
    predicted = samples.total("predicted_cached_tokens_total", worker=name)
    cached = samples.total("cached_tokens_total", worker=name)
    told = samples.mean("cached_prediction_ratio", worker=name)
    return WorkerRow(
        id=name,
        state=str(worker.get("state", "")),
        in_flight=int(worker.get("in_flight") or 0),
        outstanding_tokens=int(worker.get("outstanding_tokens") or 0),
        wait_tokens=int(worker.get("wait_tokens") or 0),
        prefill_tokens_per_second=worker.get("prefill_tokens_per_second"),
        requests_per_second=_requests(name, scrape, span),
        cached_share=_cached_share([each for each in scrape.decisions if each.get("worker") == name]),
        predicted_cached_tokens=round(predicted),
        cached_tokens=round(cached),
        prediction_ratio=told if told is not None else _share(cached, predicted),
        failures=round(samples.total("worker_failures_total", worker=name)),
    )


def _requests(worker: str, scrape: Scrape, span: Between | None) -> float | None:
    if span is None:
        return None
    fresh = [each for each in scrape.decisions if float(each.get("age_seconds") or 0.0) <= span.seconds]
    here = sum(each.get("worker") == worker for each in fresh)
    return span.rate("decisions_total") * here / len(fresh) if fresh else 0.0


def _cached_share(decisions: Sequence[Mapping[str, Any]]) -> float | None:
    """The prompt's length is the gateway's estimate there, so a share may come out above 1."""
    told = [each for each in decisions if each.get("cached_tokens") is not None]
    share = _share(sum(each["cached_tokens"] for each in told), sum(each.get("prompt_tokens", 0) for each in told))
    return None if share is None else min(share, 1.0)


def _totals(scrape: Scrape, span: Between | None) -> Totals:
    samples = scrape.samples
    reasons = span.by("reason", "decisions_total") if span else {}
    met = span.counted("slo_requests_total", met="true") if span else 0.0
    prompt = span.counted("prompt_tokens_total") if span else 0.0
    saved = "affinity_saved_tokens_total"
    return Totals(
        workers_ready=sum(worker.get("state") == "ready" for worker in scrape.workers),
        in_flight=sum(int(worker.get("in_flight") or 0) for worker in scrape.workers),
        queued=round(samples.total("queued")),
        requests_per_second=span.rate("requests_total") if span else None,
        first_token_p50=span.quantile("first_token_seconds", 0.5) if span else None,
        first_token_p90=span.quantile("first_token_seconds", 0.9) if span else None,
        cached_share=_share(span.counted("cached_tokens_total"), prompt) if span else None,
        slo_met_share=_share(met, span.counted("slo_requests_total")) if span else None,
        reasons=_shares(reasons),
        shadows=_shadows(samples),
        saved_tokens=round(samples.total(saved)) if saved in samples else None,
    )


def _shadows(samples: Samples) -> dict[str, float]:
    """Since the start: a shadow is watched for long, and differences may be rare."""
    counted = samples.by("policy", "shadow_decisions_total")
    return {
        policy: samples.total("shadow_decisions_total", policy=policy, differs="true") / total
        for policy, total in counted.items()
        if total
    }


def _shares(counts: Mapping[str, float]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: count / total for name, count in sorted(counts.items(), key=lambda each: -each[1])}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value
