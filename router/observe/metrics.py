"""The metrics of the contract: what is counted of each event, and what is read from the fleet when somebody scrapes.

What the ledger and the health table know is never counted twice. A scrape shows a snapshot: of this process, or of all
together (`snapshot.py`); states are this process's own. No label value comes unchecked from a client: paths are
patterns, models are those that some worker names, and the series of a worker go when it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from router import __version__
from router.core.fleet import Fleet
from router.events import AttemptFailed, Finished, FirstToken, Panicked, Queued, Resumed, Shadowed, WorkerLeft
from router.observe.bus import Bus
from router.observe.ejections import Ejections
from router.observe.model_names import ModelNames
from router.observe.pressure import Pressure
from router.observe.rows import Row
from router.observe.series import DECISION, NAME, Counter, Histogram, cumulative
from router.observe.snapshot import Series, Snapshot
from router.types import Reason, WorkerState

GAUGES = {"in_flight": "Requests chosen and not over", "outstanding_tokens": "Prefill tokens not yet computed"}


class Metrics(Collector):
    """Listens to the bus; `scrape` gives Prometheus text."""

    def __init__(
        self,
        bus: Bus,
        fleet: Fleet,
        paths: Collection[str],
        waiting: Callable[[], int],
        policy: str,
        heard: Callable[[], dict[str, dict[tuple[str, ...], float]]] = dict,
    ) -> None:
        self._fleet, self._paths, self._waiting, self.policy = fleet, frozenset(paths), waiting, policy
        self._model = ModelNames(fleet.known_model).shown
        self._heard = heard  # counts that others keep, by the counter's name
        self.reload_failed = self._panic = False
        self._whole: Snapshot | None = None  # while a scrape shows more than this process
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
        self._reported = Counter("reported_predicted_cached_tokens", "Predicted, where usage came", "model", "worker")
        self._saved = Counter("affinity_saved_tokens", "Cached tokens beyond what chance would bring", "model")
        self._shadowed = Counter("shadow_decisions", "Decisions of the shadow policy", "policy", "differs")
        self._shadow_cost = Counter("shadow_cost_tokens", "Tokens until the first, by the shadow's choice", "policy")
        self._shadow_made = Counter("shadow_made_tokens", "The same by the choice made", "policy")
        self._kv_events = Counter("kv_events", "What was heard of engines' caches", "worker", "kind")
        self._kv_matches = Counter("kv_matches", "Decisions by engines' word (matched), or not", "result")
        self._shared = Counter("shared", "News to and from other processes and replicas", "kind")
        self._resumed = Counter("resumed", "Broken streams that another worker went on with, or were cut", "result")
        self._decision_series = self._decision.at()
        self._counters = [value for value in vars(self).values() if isinstance(value, Counter)]
        self._counters += Pressure(bus).counters + Ejections(bus).counters
        self._histograms = [value for value in vars(self).values() if isinstance(value, Histogram)]
        bus.on(AttemptFailed, self._failed)
        bus.on(FirstToken, self._token)
        bus.on(Finished, self._finished)
        bus.on(Shadowed, self._shadow)
        bus.on(Queued, lambda event: self._queue_seconds.at().add(event.seconds))
        bus.on(Resumed, lambda event: self._resumed.add(event.result))
        bus.on(WorkerLeft, self._left)
        bus.on(Panicked, lambda event: setattr(self, "_panic", event.began))
        self._queue_seconds.at()  # it has no labels, so it is there from the start
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def scrape(self, whole: Snapshot | None = None) -> bytes:
        """Prometheus text: of `whole`, the numbers of all processes together, or of this one alone."""
        self._whole = whole
        try:
            return generate_latest(self._registry)
        finally:
            self._whole = None

    # What is counted.

    def _failed(self, event: AttemptFailed) -> None:
        if event.worker in self._fleet.seats:
            self._failures.values[event.worker, event.kind] += 1
        if event.retried:
            self._retries.values[(event.kind,)] += 1
        if event.retried and event.reason:
            self._decisions.values[self.policy, event.reason] += 1
            if event.worker in self._fleet.seats:
                self._predicted.values[self._model(event.model), event.worker] += event.predicted_cached_tokens

    def _token(self, event: FirstToken) -> None:
        model = self._model(event.model)
        self._first_token.at(model).add(event.seconds)
        self._slo_requests.values[model, "true" if event.seconds <= event.allowed else "false"] += 1

    def _finished(self, event: Finished) -> None:
        row = self._rows.get((event.path, event.model, event.worker, event.reason)) or self._row(event)
        row.add(event)
        if event.decision_seconds:
            self._decision_series.add(event.decision_seconds)
        if event.cancelled_in is not None:
            self._cancelled.values[event.cancelled_in,] += 1
        if event.code is not None:
            self._rejected.values[event.code,] += 1

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

    def _shadow(self, event: Shadowed) -> None:
        self._shadowed.values[event.policy, str(event.differs).lower()] += 1
        self._shadow_cost.values[(event.policy,)] += event.cost
        self._shadow_made.values[(event.policy,)] += event.made

    def _settle(self) -> None:
        """Bring what the rows have gathered since the last time into the counters."""
        for name, values in self._heard().items():
            next(each for each in self._counters if each.name == NAME + name).values.update(values)
        for kind, row in list(self._rows.items()):
            for status, count in row.codes.items():
                self._requests.values[row.path, row.model, str(status)] += count
            if row.count:
                self._decisions.values[self.policy, row.reason or ""] += row.count
                self._prompt.values[(row.model,)] += row.prompt
                self._unreported.values[(row.model,)] += row.unreported
                self._saved.values[(row.model,)] += row.saved
            known = row.worker in self._fleet.seats
            if known and row.worker is not None and row.count:
                self._predicted.values[row.model, row.worker] += row.predicted
                self._cached.values[row.model, row.worker] += row.cached
                self._reported.values[row.model, row.worker] += row.reported
                if row.reason == Reason.SPILL:
                    self._spills.values[(row.worker,)] += row.count
            row.clear()
            if row.worker is not None and not known:
                del self._rows[kind]

    def _left(self, event: WorkerLeft) -> None:
        self._settle()
        for counter in self._counters:
            counter.forget(event.worker)

    # What a scrape shows.

    def snapshot(self) -> Snapshot:
        """All numbers of this process, fit to be added to those of others."""
        self._settle()
        sums: dict[str, Series] = {each.name: each.numbers() for each in self._counters}
        sums.update({each.name: each.numbers() for each in self._histograms})
        seats = self._fleet.seats.values()
        gauges: dict[str, Series] = {
            "in_flight": {(seat.id,): [seat.load.in_flight] for seat in seats},
            "outstanding_tokens": {(seat.id,): [seat.load.charged] for seat in seats},
            "queued": {(): [self._waiting()]},
        }
        worker_at = {each.name: each.labels.index("worker") for each in self._counters if "worker" in each.labels}
        return Snapshot(sums, gauges, worker_at)

    def collect(self) -> Iterator[Metric]:
        whole = self._whole or self.snapshot()
        for counter in self._counters:
            family = CounterMetricFamily(counter.name, counter.text, labels=counter.labels)
            for labels, numbers in whole.sums.get(counter.name, {}).items():
                family.add_metric(labels, numbers[0])
            yield family
        for each in self._histograms:
            histogram = HistogramMetricFamily(each.name, each.text, labels=each.labels)
            for labels, (*counts, total) in whole.sums.get(each.name, {}).items():
                histogram.add_metric(labels, cumulative(each.bounds, counts), total)
            yield histogram
        yield from self._gauges(whole)

    def _gauges(self, whole: Snapshot) -> Iterable[Metric]:
        for name, text in GAUGES.items():
            family = GaugeMetricFamily(NAME + name, text, labels=["worker"])
            for labels, numbers in whole.gauges.get(name, {}).items():
                family.add_metric(labels, numbers[0])
            yield family
        state = GaugeMetricFamily(NAME + "worker_state", "1 for the current state", labels=["worker", "state"])
        for seat in self._fleet.seats.values():
            for each in WorkerState:
                state.add_metric([seat.id, each.value], float(seat.health.state is each))
        yield from (state, self._ratio(whole))
        yield GaugeMetricFamily(NAME + "queued", "Requests in the waiting room", value=whole.total("queued"))
        yield GaugeMetricFamily(NAME + "panic", "1 while nearly all workers look bad", value=float(self._panic))
        yield GaugeMetricFamily(NAME + "config_reload_failed", "1 after a bad reload", value=float(self.reload_failed))
        build = GaugeMetricFamily(NAME + "build_info", "The running version", labels=["version"])
        build.add_metric([__version__], 1)
        yield build

    def _ratio(self, whole: Snapshot) -> Metric:
        """Since the start; the rates of both counters tell of the last minutes."""
        family = GaugeMetricFamily(NAME + "cached_prediction_ratio", "Came / expected", labels=["model", "worker"])
        delivered = whole.sums.get(self._cached.name, {})
        for labels, numbers in whole.sums.get(self._reported.name, {}).items():
            if numbers[0]:
                family.add_metric(labels, delivered.get(labels, [0.0])[0] / numbers[0])
        return family
