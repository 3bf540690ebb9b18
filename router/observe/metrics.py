"""The metrics of the contract: what is counted of each event, and what is read from the fleet when somebody scrapes.

What the ledger and the health table know (in-flight, tokens, states) is never counted twice. No label value comes
unchecked from a client: paths are patterns, models are those that some worker names, and the series of a worker go
when it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from router import __version__
from router.core.fleet import Fleet
from router.events import AttemptFailed, Finished, FirstToken, Panicked, Queued, WorkerLeft
from router.observe.bus import Bus
from router.observe.series import DECISION, NAME, Counter, Histogram
from router.types import Reason, WorkerState


class PathModel:
    """The series of one path and model, looked up once a request."""

    __slots__ = ("codes", "first_byte", "labels", "seconds")

    def __init__(self, path: str, model: str, seconds: Histogram, first_byte: Histogram) -> None:
        self.labels = (path, model)
        self.codes: dict[int, int] = {}
        self.seconds = seconds.at(path, model)
        self.first_byte = first_byte.at(path, model)


class Metrics(Collector):
    """Listens to the bus; `scrape` gives Prometheus text."""

    def __init__(
        self,
        bus: Bus,
        fleet: Fleet,
        paths: Collection[str],
        waiting: Callable[[], int],
        policy: str,
        slo_seconds: float,
    ) -> None:
        self._fleet, self._paths, self._waiting, self._policy = fleet, frozenset(paths), waiting, policy
        self._slo = slo_seconds
        self.reload_failed = self._panic = False
        self._rows: dict[tuple[str, str], PathModel] = {}
        self._seconds = Histogram("request_seconds", "Seconds from a request's head to its end", "path", "model")
        self._first_byte = Histogram("first_byte_seconds", "Seconds until the answer's head", "path", "model")
        self._first_token = Histogram("first_token_seconds", "Seconds until a stream's first content event", "model")
        self._decision = Histogram("decision_seconds", "Seconds of reading, hashing and choosing", bounds=DECISION)
        self._queue_seconds = Histogram("queue_seconds", "Seconds in the waiting room")
        self._decisions = Counter("decisions", "Workers chosen, by policy and reason", "policy", "reason")
        self._prompt = Counter("prompt_tokens", "Prompt tokens, as reported or else estimated", "model")
        self._cached = Counter("cached_tokens", "Prompt tokens from a cache, as reported", "model", "worker")
        self._predicted = Counter("predicted_cached_tokens", "Prompt tokens expected cached", "model", "worker")
        self._unreported = Counter("usage_unreported", "Answers whose worker reported no usage", "model")
        self._failures = Counter("worker_failures", "Failed attempts, by worker and kind", "worker", "kind")
        self._retries = Counter("retries", "Further attempts, by the kind of failure before", "kind")
        self._spills = Counter("spills", "Requests moved to this worker from a loaded one", "worker")
        self._cancelled = Counter("cancelled", "Requests whose client went away, by phase", "phase")
        self._rejected = Counter("rejected", "Requests refused by the gateway, by code", "code")
        self._slo_requests = Counter("slo_requests", "Streams whose first token came in time, or not", "model", "met")
        self._counters = [value for value in vars(self).values() if isinstance(value, Counter)]
        self._histograms = [value for value in vars(self).values() if isinstance(value, Histogram)]
        bus.on(AttemptFailed, self._failed)
        bus.on(FirstToken, self._token)
        bus.on(Finished, self._finished)
        bus.on(Queued, lambda event: self._queue_seconds.at().add(event.seconds))
        bus.on(WorkerLeft, self._left)
        bus.on(Panicked, self._panicked)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def scrape(self) -> bytes:
        return generate_latest(self._registry)

    # What is counted.

    def _failed(self, event: AttemptFailed) -> None:
        if event.worker in self._fleet.seats:
            self._failures.values[event.worker, event.kind] += 1
        if event.retried:
            self._retries.values[(event.kind,)] += 1
            self._decided(event, self._model(event.model))

    def _decided(self, event: AttemptFailed | Finished, model: str) -> None:
        """Each attempt's choice once: when it fails and another follows, or at the request's end."""
        self._decisions.values[self._policy, event.reason or ""] += 1
        if event.worker in self._fleet.seats:
            self._predicted.values[model, event.worker] += event.predicted_cached_tokens
            if event.reason == Reason.SPILL:
                self._spills.values[(event.worker,)] += 1

    def _token(self, event: FirstToken) -> None:
        model = self._model(event.model)
        self._first_token.at(model).add(event.seconds)
        self._slo_requests.values[model, "true" if event.seconds <= self._slo else "false"] += 1

    def _finished(self, event: Finished) -> None:
        row = self._rows.get((event.path, event.model)) or self._row(event)
        row.codes[event.status] = row.codes.get(event.status, 0) + 1
        row.seconds.add(event.seconds)
        if event.first_byte_seconds is not None:
            row.first_byte.add(event.first_byte_seconds)
        if event.decision_seconds:
            self._decision.at().add(event.decision_seconds)
        if event.cancelled_in is not None:
            self._cancelled.values[(event.cancelled_in,)] += 1
        if event.code is not None:
            self._rejected.values[(event.code,)] += 1
        if event.worker is not None:
            self._decided(event, row.labels[1])
            if event.status < 400:
                self._tokens(event, row.labels[1])

    def _tokens(self, event: Finished, model: str) -> None:
        self._prompt.values[(model,)] += event.prompt_tokens
        if not event.usage_reported:
            self._unreported.values[(model,)] += 1
        elif event.cached_tokens is not None and event.worker in self._fleet.seats:
            self._cached.values[model, event.worker] += event.cached_tokens

    def _row(self, event: Finished) -> PathModel:
        path = event.path if event.path in self._paths else "other"
        model = self._model(event.model)
        row = self._rows.get((path, model))
        if row is None:
            row = self._rows[path, model] = PathModel(path, model, self._seconds, self._first_byte)
        return row

    def _model(self, model: str) -> str:
        return model if self._fleet.known_model(model) else "other"

    def _left(self, event: WorkerLeft) -> None:
        for counter in self._counters:
            counter.forget(event.worker)

    def _panicked(self, event: Panicked) -> None:
        self._panic = event.began

    # What a scrape shows.

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            NAME + "requests",
            "Requests, by path pattern, model and status (499: the client went away)",
            labels=("path", "model", "code"),
        )
        for row in self._rows.values():
            for status, count in row.codes.items():
                requests.add_metric((*row.labels, str(status)), count)
        yield requests
        for counter in self._counters:
            family = CounterMetricFamily(counter.name, counter.text, labels=counter.labels)
            for labels, value in counter.values.items():
                family.add_metric(labels, value)
            yield family
        for each in self._histograms:
            histogram = HistogramMetricFamily(each.name, each.text, labels=each.labels)
            for labels, series in each.series.items():
                histogram.add_metric(labels, series.cumulative(), series.total)
            yield histogram
        yield from self._gauges()

    def _gauges(self) -> Iterable[Metric]:
        in_flight = GaugeMetricFamily(NAME + "in_flight", "Requests chosen and not over", labels=["worker"])
        tokens = GaugeMetricFamily(NAME + "outstanding_tokens", "Prefill tokens not yet computed", labels=["worker"])
        state = GaugeMetricFamily(NAME + "worker_state", "1 for the current state", labels=["worker", "state"])
        for seat in self._fleet.seats.values():
            in_flight.add_metric([seat.id], seat.load.in_flight)
            tokens.add_metric([seat.id], seat.load.charged)
            for each in WorkerState:
                state.add_metric([seat.id, each.value], float(seat.health.state is each))
        yield from (in_flight, tokens, state)
        for name, text, value in (
            ("queued", "Requests in the waiting room", self._waiting()),
            ("panic", "1 while nearly all workers look bad", float(self._panic)),
            ("config_reload_failed", "1 while the last reload was refused", float(self.reload_failed)),
        ):
            yield GaugeMetricFamily(NAME + name, text, value=value)
        build = GaugeMetricFamily(NAME + "build_info", "The running version", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
