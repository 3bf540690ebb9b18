"""What one kind of request adds to, gathered until somebody scrapes."""

from __future__ import annotations

from bisect import bisect_left

from router.events import Finished
from router.observe.series import SECONDS, Buckets


class Row:
    """What one kind of request adds to: a path, a model, and where it went and why. Looked up once a request."""

    __slots__ = ("cached", "codes", "count", "first_byte", "model", "path", "predicted", "prompt", "reason", "reported",
                 "saved", "seconds", "unreported", "worker")  # fmt: skip

    def __init__(self, path: str, model: str, worker: str | None, reason: str | None) -> None:
        self.path, self.model, self.worker, self.reason = path, model, worker, reason
        self.seconds: Buckets
        self.first_byte: Buckets
        self.clear()

    def clear(self) -> None:
        """Begin anew: all of it is in the counters."""
        self.codes: dict[int, int] = {}
        self.count = self.predicted = self.prompt = self.cached = self.unreported = self.reported = self.saved = 0

    def add(self, event: Finished) -> None:
        """One more of this kind."""
        status = event.status
        self.codes[status] = self.codes.get(status, 0) + 1
        seconds, series = event.seconds, self.seconds  # `add`, without the calls
        series.counts[bisect_left(SECONDS, seconds)] += 1
        series.total += seconds
        first_byte = event.first_byte_seconds
        if first_byte:
            series = self.first_byte
            series.counts[bisect_left(SECONDS, first_byte)] += 1
            series.total += first_byte
        if self.worker is not None:
            predicted = event.predicted_cached_tokens
            self.count += 1
            self.predicted += predicted
            if status < 400:
                self.prompt += event.prompt_tokens
                cached = event.cached_tokens
                if cached is not None:
                    self.cached += cached
                    self.reported += predicted
                    if cached > event.chance_cached_tokens:
                        self.saved += cached - event.chance_cached_tokens
                if not event.usage_reported:
                    self.unreported += 1
