"""What came out of a run, over the requests after the warm-up or of a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from router.replay.item import Request
from router.replay.simulate import Simulation

WARM = 0.1  # of the requests, at the beginning: caches and tables fill
TARGET_SECONDS, TARGET_TIMES = 2.0, 2.0  # TTFT target: the longer of this and so many times the prompt's prefill alone
NUMBERS = ("ttft_mean", "ttft_p50", "ttft_p90", "ttft_p99", "hit_share", "inside_target", "imbalance", "busy")


class Figures(msgspec.Struct, frozen=True):
    """Seconds, and shares from 0 to 1.

    hit_share: of the prompt tokens; inside_target: of the requests; busy: of the workers' time, spent on prefill
    imbalance: the busiest worker's prefill seconds against the mean
    """

    requests: int
    ttft_mean: float
    ttft_p50: float
    ttft_p90: float
    ttft_p99: float
    hit_share: float
    inside_target: float
    imbalance: float
    busy: float
    reasons: Mapping[str, int] = {}


def figures(run: Simulation, begin: float = WARM, end: float = 1.0) -> Figures:
    """Of the requests from this share of them to that one, in the order of the trace; of one at least."""
    count = len(run.requests)
    first = int(count * begin)
    part = run.requests[first : max(first + 1, int(count * end))]
    times = sorted(request.ttft for request in part)
    tokens = sum(request.item.tokens for request in part)
    busy = [worker.busy for worker in run.workers if worker.alive]
    mean_busy = sum(busy) / len(busy)
    over = max(request.first for request in run.requests)
    return Figures(
        requests=len(part),
        ttft_mean=sum(times) / len(times),
        ttft_p50=quantile(times, 0.5),
        ttft_p90=quantile(times, 0.9),
        ttft_p99=quantile(times, 0.99),
        hit_share=sum(request.hit for request in part) / tokens,
        inside_target=sum(inside_target(request, run) for request in part) / len(part),
        imbalance=max(busy) / mean_busy if mean_busy else 1.0,
        busy=mean_busy / over if over else 0.0,
        reasons=dict(Counter(request.reason for request in part).most_common()),
    )


def inside_target(request: Request, run: Simulation) -> bool:
    return request.ttft <= max(TARGET_SECONDS, TARGET_TIMES * run.setup.timing.alone(request.item.tokens))


def quantile(ascending: Sequence[float], share: float) -> float:
    """Between the two nearest values, in proportion."""
    place = share * (len(ascending) - 1)
    below = int(place)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (place - below) * (ascending[above] - ascending[below])


def averaged(each: Sequence[Figures]) -> Figures:
    """The mean over runs with different dice; counts are summed."""
    reasons: Counter[str] = Counter()
    for figure in each:
        reasons.update(figure.reasons)
    means = {name: sum(getattr(figure, name) for figure in each) / len(each) for name in NUMBERS}
    return Figures(requests=sum(figure.requests for figure in each), reasons=dict(reasons.most_common()), **means)


def spread_of(each: Sequence[Figures]) -> dict[str, tuple[float, float]]:
    """The least and the greatest of each number."""
    found = {name: [float(getattr(figure, name)) for figure in each] for name in NUMBERS}
    return {name: (min(values), max(values)) for name, values in found.items()}
