"""Prometheus metrics, counted in plain numbers and exported by one collector.

A request costs a few dictionary additions here; label children and their locks would cost several times that. What the
ledger and the health table know (in-flight, tokens, states) is read from them at scrape time and never counted twice.
No label value comes unchecked from a client: paths are patterns, models are those that some worker names.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from router import __version__
from router.core.fleet import Fleet
from router.events import AttemptFailed, Chosen, Finished, FirstByte, FirstToken, Panicked, Queued, WorkerLeft
from router.observe.bus import Bus
from router.types import WorkerState

NAME = "prefix_router_"
SECONDS = (.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)  # fmt: skip
DECISION = (.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .1, 1)  # fmt: skip

Labels = tuple[str, ...]


class Counter:
    def __init__(self, name: str, text: str, *labels: str) -> None:
        self.name, self.text, self.labels = name, text, labels
        self.values: dict[Labels, float] = defaultdict(float)

    def collect(self) -> Metric:
        family = CounterMetricFamily(NAME + self.name, self.text, labels=self.labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        return family

    def forget(self, worker: str) -> None:
        """Drop the series of a worker that left."""
        if "worker" in self.labels:
            at = self.labels.index("worker")
            for labels in [labels for labels in self.values if labels[at] == worker]:
                del self.values[labels]


class Histogram:
    def __init__(self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = SECONDS) -> None:
        self.name, self.text, self.labels, self.buckets = name, text, labels, buckets
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = defaultdict(float)

    def observe(self, labels: Labels, value: float) -> None:
        counts = self.counts.get(labels)
        if counts is None:
            counts = self.counts[labels] = [0] * (len(self.buckets) + 1)
        counts[bisect_left(self.buckets, value)] += 1
        self.sums[labels] += value

    def collect(self) -> Metric:
        family = HistogramMetricFamily(NAME + self.name, self.text, labels=self.labels)
        for labels, counts in self.counts.items():
            total, rows = 0, []
            for bound, count in zip((*self.buckets, float("inf")), counts, strict=True):
                total += count
                rows.append(("+Inf" if bound == float("inf") else str(float(bound)), total))
            family.add_metric(labels, rows, self.sums[labels])
        return family


class Metrics(Collector):
    """Listens to the bus; `scrape` gives the exposition text. Safe from any thread that holds no reference."""

    def __init__(
        self, bus: Bus, fleet: Fleet, paths: Collection[str], waiting: Callable[[], int], policy: str, slo_seconds: float
    ) -> None:
        self._fleet, self._paths, self._waiting, self._policy, self._slo = fleet, frozenset(paths), waiting, policy, slo_seconds
        self.reload_failed = False
        self._panic = False
        self._requests = Counter("requests", "Requests, by path pattern, model and status (499: the client went away)", "path", "model", "code")
        self._seconds = Histogram("request_seconds", "Seconds from a request's first byte to its end", "path", "model")
        self._first_byte = Histogram("first_byte_seconds", "Seconds until the head of the answer", "path", "model")
        self._first_token = Histogram("first_token_seconds", "Seconds until a stream's first event with content", "model")
        self._decision = Histogram("decision_seconds", "Seconds of sending a request on its way, once it is read", buckets=DECISION)
        self._decisions = Counter("decisions", "Workers chosen, by policy and reason", "policy", "reason")
        self._prompt = Counter("prompt_tokens", "Prompt tokens, as reported by the worker or else estimated", "model")
        self._cached = Counter("cached_tokens", "Prompt tokens served from a worker's cache, as it reported", "model", "worker")
        self._predicted = Counter("predicted_cached_tokens", "Prompt tokens expected in the chosen worker's cache", "model", "worker")
        self._unreported = Counter("usage_unreported", "Answers whose worker reported no usage", "model")
        self._failures = Counter("worker_failures", "Attempts that failed, by worker and kind", "worker", "kind")
        self._retries = Counter("retries", "Attempts made again, by the kind of failure before", "kind")
        self._spills = Counter("spills", "Requests moved here because a preferred worker was too loaded", "worker")
        self._cancelled = Counter("cancelled", "Requests whose client went away, by phase", "phase")
        self._queue_seconds = Histogram("queue_seconds", "Seconds in the waiting room")
        self._rejected = Counter("rejected", "Requests refused by the gateway, by code", "code")
        self._slo_requests = Counter("slo_requests", "Streams whose first token came in time, or not", "model", "met")
        self._own = [value for value in vars(self).values() if isinstance(value, Counter | Histogram)]
        for kind, listener in (
            (Chosen, self._chosen), (AttemptFailed, self._failed), (FirstByte, self._byte), (FirstToken, self._token),
            (Finished, self._finished), (Queued, lambda e: self._queue_seconds.observe((), e.seconds)),
            (WorkerLeft, self._left), (Panicked, lambda e: setattr(self, "_panic", e.began)),
        ):  # fmt: skip
            bus.on(kind, listener)  # type: ignore[arg-type]
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def scrape(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        for metric in self._own:
            yield metric.collect()
        yield from self._gauges()

    def _gauges(self) -> Iterable[Metric]:
        seats = self._fleet.seats.values()
        in_flight = GaugeMetricFamily(NAME + "in_flight", "Requests chosen for a worker and not over", labels=["worker"])
        tokens = GaugeMetricFamily(NAME + "outstanding_tokens", "Prefill tokens charged and not yet computed", labels=["worker"])
        state = GaugeMetricFamily(NAME + "worker_state", "1 for the worker's current state", labels=["worker", "state"])
        for seat in seats:
            in_flight.add_metric([seat.id], seat.load.in_flight)
            tokens.add_metric([seat.id], seat.load.charged)
            for each in WorkerState:
                state.add_metric([seat.id, each.value], float(seat.health.state is each))
        yield from (in_flight, tokens, state)
        for name, text, value in (
            ("queued", "Requests in the waiting room", self._waiting()),
            ("panic", "1 while nearly all workers look bad and the last good ones are tried", float(self._panic)),
            ("config_reload_failed", "1 while the last reload was refused", float(self.reload_failed)),
        ):
            yield GaugeMetricFamily(NAME + name, text, value=value)
        build = GaugeMetricFamily(NAME + "build_info", "The running version", labels=["version"])
        build.add_metric([__version__], 1)
        yield build

    def _model(self, model: str) -> str:
        return model if self._fleet.known_model(model) else "other"

    def _chosen(self, event: Chosen) -> None:
        self._decisions.values[self._policy, event.reason] += 1
        self._decision.observe((), event.decision_seconds)
        self._predicted.values[self._model(event.model), event.worker] += event.predicted_cached_tokens
        if event.reason == "spill":
            self._spills.values[(event.worker,)] += 1

    def _failed(self, event: AttemptFailed) -> None:
        self._failures.values[event.worker, event.kind] += 1
        if event.retried:
            self._retries.values[(event.kind,)] += 1

    def _byte(self, event: FirstByte) -> None:
        self._first_byte.observe((event.path, self._model(event.model)), event.seconds)

    def _token(self, event: FirstToken) -> None:
        model = self._model(event.model)
        self._first_token.observe((model,), event.seconds)
        self._slo_requests.values[model, "true" if event.seconds <= self._slo else "false"] += 1

    def _finished(self, event: Finished) -> None:
        path = event.path if event.path in self._paths else "other"
        model = self._model(event.model)
        self._requests.values[path, model, str(event.status)] += 1
        self._seconds.observe((path, model), event.seconds)
        if event.cancelled_in is not None:
            self._cancelled.values[(event.cancelled_in,)] += 1
        if event.code is not None:
            self._rejected.values[(event.code,)] += 1
        if event.worker is None or event.status >= 400:
            return
        self._prompt.values[(model,)] += event.prompt_tokens
        if event.cached_tokens is not None and event.worker in self._fleet.seats:
            self._cached.values[model, event.worker] += event.cached_tokens
        if not event.usage_reported:
            self._unreported.values[(model,)] += 1

    def _left(self, event: WorkerLeft) -> None:
        for metric in self._own:
            if isinstance(metric, Counter):
                metric.forget(event.worker)
