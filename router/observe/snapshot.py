"""All counts of one process as plain numbers, and how those of several become one.

A series' numbers add up place by place: a counter has one, a histogram its buckets and then its sum. What has ended
counts on in the sums, never in the gauges.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

Series = dict[tuple[str, ...], list[float]]  # label values -> numbers


class Snapshot(msgspec.Struct):
    """sums: what only grows, by the metric's name; gauges: what is now
    worker_at: where the label `worker` stands in a series of sums, for the metrics that have it
    """

    sums: dict[str, Series] = {}
    gauges: dict[str, Series] = {}
    worker_at: dict[str, int] = {}

    def add(self, other: Snapshot) -> None:
        """Count the other's numbers too."""
        self.add_sums(other)
        _add(self.gauges, other.gauges)

    def add_sums(self, other: Snapshot) -> None:
        """Count what the other, which has ended, has counted."""
        _add(self.sums, other.sums)
        self.worker_at.update(other.worker_at)

    def keep(self, workers: Collection[str]) -> None:
        """Drop the series of all workers but these."""
        for name, at in self.worker_at.items():
            series = self.sums.get(name, {})
            for labels in [labels for labels in series if len(labels) <= at or labels[at] not in workers]:
                del series[labels]

    def workers(self) -> set[str]:
        """The workers that are known now."""
        return {labels[0] for labels in self.gauges.get("in_flight", {}) if labels}

    def total(self, name: str) -> float:
        """A counter's or a gauge's first numbers, over all its series."""
        series = self.sums.get(name) or self.gauges.get(name) or {}
        return sum(numbers[0] for numbers in series.values() if numbers)


def _add(mine: dict[str, Series], other: Mapping[str, Series]) -> None:
    for name, series in other.items():
        into = mine.setdefault(name, {})
        for labels, numbers in series.items():
            have = into.get(labels)
            if have is None:
                into[labels] = list(numbers)
            else:
                longer, shorter = (have, numbers) if len(have) >= len(numbers) else (numbers, have)
                into[labels] = [a + b for a, b in zip(longer, shorter, strict=False)] + longer[len(shorter) :]


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Snapshot).decode
