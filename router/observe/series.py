"""Counters and histograms in plain numbers, and how Prometheus wants to see them.

An observation is a few additions; prometheus-client's label children and their locks would cost several times that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from math import inf
from typing import Final

NAME: Final = "prefix_router_"
SECONDS: Final = (.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)  # fmt: skip
DECISION: Final = (.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .1, 1)  # fmt: skip

Labels = tuple[str, ...]


class Counter:
    """A counter's series by their label values."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self.name, self.text, self.labels = NAME + name, text, labels
        self.values: dict[Labels, float] = defaultdict(float)

    def add(self, *labels: str) -> None:
        """One more."""
        self.values[labels] += 1

    def numbers(self) -> dict[Labels, list[float]]:
        return {labels: [value] for labels, value in self.values.items()}

    def forget(self, worker: str) -> None:
        """Drop the series of a worker that left."""
        if "worker" in self.labels:
            at = self.labels.index("worker")
            for labels in [labels for labels in self.values if labels[at] == worker]:
                del self.values[labels]


class Buckets:
    """One histogram series."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def numbers(self) -> list[float]:
        """The counts, and then the sum."""
        return [*self.counts, self.total]


def cumulative(bounds: Sequence[float], counts: Sequence[float]) -> list[tuple[str, float]]:
    """(upper bound, observations up to it), the last bound infinite."""
    rows, so_far = [], 0.0
    for bound, count in zip((*bounds, inf), counts, strict=False):
        so_far += count
        rows.append(("+Inf" if bound == inf else str(float(bound)), so_far))
    return rows


class Histogram:
    """A histogram's series by their label values."""

    def __init__(self, name: str, text: str, *labels: str, bounds: tuple[float, ...] = SECONDS) -> None:
        self.name, self.text, self.labels, self.bounds = NAME + name, text, labels, bounds
        self.series: dict[Labels, Buckets] = {}

    def numbers(self) -> dict[Labels, list[float]]:
        return {labels: series.numbers() for labels, series in self.series.items()}

    def at(self, *labels: str) -> Buckets:
        """The series with these label values."""
        found = self.series.get(labels)
        if found is None:
            found = self.series[labels] = Buckets(self.bounds)
        return found
