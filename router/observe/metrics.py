"""The metrics of the contract: what is counted of each event, and what is read from the fleet when somebody scrapes.

What the ledger and the health table know (in-flight, tokens, states) is never counted twice. No label value comes
unchecked from a client: paths are patterns, models are those that some worker names, and the series of a worker go
when it leaves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from router import __version__
from router.core.fleet import Fleet
from router.events import AttemptFailed, Finished, FirstToken, Panicked, Queued, WorkerLeft
from router.observe.bus import Bus
from router.observe.series import DECISION, NAME, SECONDS, Buckets, Counter, Histogram
from router.types import Reason, WorkerState


class Row:
    """What one kind of request adds to: a path, a model, and where it went and why. Looked up once a request."""

    __slots__ = ("cached", "codes", "count", "first_byte", "model", "path", "predicted", "prompt", "reason", "seconds",
                 "unreported", "worker")  # fmt: skip

    def __init__(self, path: str, model: str, worker: str | None, reason: str | None) -> None:
        self.path, self.model, self.worker, self.reason = path, model, worker, reason
        self.codes: dict[int, int] = {}
        self.seconds: Buckets
        self.first_byte: Buckets
        self.count = self.predicted = self.prompt = self.cached = self.unreported = 0


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
        self._rows: dict[tuple[str, str, str | None, str | None], Row] = {}
        self._seconds = Histogram("request_seconds", "Seconds from a request's head to its end", "path", "model")
        self._first_byte = Histogram("first_byte_seconds", "Seconds until the answer's head", "path", "model")
        self._first_token = Histogram("first_token_seconds", "Seconds until a stream's first content event", "model")
        self._decision = Histogram("decision_seconds", "Seconds of reading, hashing and choosing", bounds=DECISION)
        self._queue_seconds = Histogram("queue_seconds", "Seconds in the waiting room")
        self._requests = Counter("requests", "Requests (code 499: the client went away)", "path", "model", "code")
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
        self._decision_series = self._decision.at()
        self._counters = [value for value in vars(self).values() if isinstance(value, Counter)]
        self._histograms = [value for value in vars(self).values() if isinstance(value, Histogram)]
        bus.on(AttemptFailed, self._failed)
        bus.on(FirstToken, self._token)
        bus.on(Finished, self._finished)
        bus.on(Queued, lambda event: self._queue_seconds.at().add(event.seconds))
        bus.on(WorkerLeft, self._left)
        bus.on(Panicked, self._panicked)
        self._queue_seconds.at()  # it has no labels, so it is there from the start
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
            self._decisions.values[self._policy, event.reason] += 1
            if event.worker in self._fleet.seats:
                self._predicted.values[self._model(event.model), event.worker] += event.predicted_cached_tokens

    def _token(self, event: FirstToken) -> None:
        model = self._model(event.model)
        self._first_token.at(model).add(event.seconds)
        self._slo_requests.values[model, "true" if event.seconds <= self._slo else "false"] += 1

    def _finished(self, event: Finished) -> None:
        row = self._rows.get((event.path, event.model, event.worker, event.reason)) or self._row(event)
        status = event.status
        row.codes[status] = row.codes.get(status, 0) + 1
        seconds, series = event.seconds, row.seconds  # `add`, without the calls
        series.counts[bisect_left(SECONDS, seconds)] += 1
        series.total += seconds
        seconds, series = event.first_byte_seconds or 0.0, row.first_byte
        if seconds:
            series.counts[bisect_left(SECONDS, seconds)] += 1
            series.total += seconds
        seconds, series = event.decision_seconds, self._decision_series
        if seconds:
            series.counts[bisect_left(DECISION, seconds)] += 1
            series.total += seconds
        if row.worker is not None:
            row.count += 1
            row.predicted += event.predicted_cached_tokens
            if status < 400:
                row.prompt += event.prompt_tokens
                row.cached += event.cached_tokens or 0
                row.unreported += not event.usage_reported
        if event.cancelled_in is not None:
            self._cancelled.values[(event.cancelled_in,)] += 1
        if event.code is not None:
            self._rejected.values[(event.code,)] += 1

    def _row(self, event: Finished) -> Row:
        """The row of this kind of request; names that no worker bears fall together."""
        path = event.path if event.path in self._paths else "other"
        model = self._model(event.model)
        kind = path, model, event.worker, event.reason
        row = self._rows.get(kind)
        if row is None:
            row = self._rows[kind] = Row(*kind)
            row.seconds = self._seconds.at(path, model)
            row.first_byte = self._first_byte.at(path, model)
        return row

    def _settle(self) -> None:
        """Bring what the rows have gathered since the last time into the counters."""
        for kind, row in list(self._rows.items()):
            for status, count in row.codes.items():
                self._requests.values[row.path, row.model, str(status)] += count
            row.codes.clear()
            if row.count:
                self._decisions.values[self._policy, row.reason or ""] += row.count
                self._prompt.values[(row.model,)] += row.prompt
                self._unreported.values[(row.model,)] += row.unreported
            known = row.worker in self._fleet.seats
            if known and row.worker is not None and row.count:
                self._predicted.values[row.model, row.worker] += row.predicted
                self._cached.values[row.model, row.worker] += row.cached
                if row.reason == Reason.SPILL:
                    self._spills.values[(row.worker,)] += row.count
            row.count = row.predicted = row.prompt = row.cached = row.unreported = 0
            if row.worker is not None and not known:
                del self._rows[kind]

    def _model(self, model: str) -> str:
        return model if self._fleet.known_model(model) else "other"

    def _left(self, event: WorkerLeft) -> None:
        self._settle()
        for counter in self._counters:
            counter.forget(event.worker)

    def _panicked(self, event: Panicked) -> None:
        self._panic = event.began

    # What a scrape shows.

    def collect(self) -> Iterator[Metric]:
        self._settle()
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
