"""The only place that reads the time."""

from __future__ import annotations

from datetime import UTC, datetime
from time import monotonic

__all__ = ["monotonic", "timestamp"]


def timestamp() -> str:
    """The wall clock in ISO 8601, for logs."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
