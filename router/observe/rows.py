"""What one kind of request adds to, gathered until somebody scrapes."""

from __future__ import annotations

from router.observe.series import Buckets


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
