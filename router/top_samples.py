"""The gateway's own metrics, read back from Prometheus text, and what two readings say of the time between them.

Pure. It reads what this gateway writes (text format 0.0.4), not every exposition there may be: no timestamps and no
exemplars. Names come without the gateway's prefix.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import isfinite

NAME = "prefix_router_"
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
ESCAPED = re.compile(r"\\(.)")

Labels = Mapping[str, str]


class Samples:
    """Every sample of one scrape; a name that is not there has none."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for line in text.split("\n"):
            found = SAMPLE.fullmatch(line.strip("\r"))
            if found is None or not found[1].startswith(NAME):
                continue
            try:
                value = float(found[3])
            except ValueError:
                continue
            labels = tuple((name, ESCAPED.sub(_unescaped, text)) for name, text in LABEL.findall(found[2] or ""))
            self._values.setdefault(found[1].removeprefix(NAME), {})[labels] = value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def each(self, name: str) -> Iterator[tuple[Labels, float]]:
        for labels, value in self._values.get(name, {}).items():
            yield dict(labels), value

    def total(self, name: str, **chosen: str) -> float:
        """The sum of a metric's samples that have these label values."""
        return sum(value for labels, value in self.each(name) if chosen.items() <= labels.items())

    def mean(self, name: str, **chosen: str) -> float | None:
        values = [value for labels, value in self.each(name) if chosen.items() <= labels.items() and isfinite(value)]
        return sum(values) / len(values) if values else None

    def by(self, label: str, name: str) -> dict[str, float]:
        """A metric's sums by one of its labels; a label value that is not there has none."""
        sums: dict[str, float] = defaultdict(float)
        for labels, value in self.each(name):
            sums[labels.get(label, "")] += value
        return sums


class Between:
    """What was counted between two scrapes. A counter that went down began anew: its gateway was restarted."""

    def __init__(self, before: Samples, after: Samples, seconds: float) -> None:
        self.before, self.after, self.seconds = before, after, max(seconds, 1e-9)

    def counted(self, name: str, **chosen: str) -> float:
        return _grown(self.before.total(name, **chosen), self.after.total(name, **chosen))

    def rate(self, name: str, **chosen: str) -> float:
        """A second."""
        return self.counted(name, **chosen) / self.seconds

    def by(self, label: str, name: str) -> dict[str, float]:
        """What was counted by one label's values, those with nothing left out."""
        was = self.before.by(label, name)
        grown = {value: _grown(was[value], now) for value, now in self.after.by(label, name).items()}
        return {value: count for value, count in grown.items() if count > 0}

    def quantile(self, name: str, share: float) -> float | None:
        """The histogram's quantile, straight within a bucket as Prometheus has it; None where nothing was observed."""
        buckets = sorted(
            (float(bound), count) for bound, count in self._buckets(f"{name}_bucket").items() if bound != "+Inf"
        )
        total = self.counted(f"{name}_count")
        if not buckets or total <= 0:
            return None
        rank, below, start = share * total, 0.0, 0.0
        for bound, count in buckets:
            if count >= rank and count > below:
                return start + (bound - start) * (rank - below) / (count - below)
            below, start = count, bound
        return buckets[-1][0]

    def _buckets(self, name: str) -> dict[str, float]:
        was = self.before.by("le", name)
        return {bound: _grown(was[bound], now) for bound, now in self.after.by("le", name).items()}


def _grown(before: float, after: float) -> float:
    return after - before if after >= before else after


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
