"""What one run on real engines came to, and how it compares with random routing."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil

from prometheus_client.parser import text_string_to_metric_families
from rich.table import Table

from bench.engine_client import Answer

PREDICTED = "prefix_router_predicted_cached_tokens_total"
DELIVERED = "prefix_router_cached_tokens_total"


@dataclass(frozen=True, slots=True)
class Figures:
    """One policy's: times in seconds, shares from 0 to 1, cached tokens by the gateway's own metrics."""

    requests: int
    errors: int
    ttft_p50: float
    ttft_p90: float
    hit_share: float
    output_tokens_per_second: float
    imbalance: float
    predicted_cached_tokens: float
    delivered_cached_tokens: float
    prompt_tokens: int
    seconds: float

    @property
    def predicted_to_delivered(self) -> float:
        return self.predicted_cached_tokens / self.delivered_cached_tokens if self.delivered_cached_tokens else 0.0


def figures(answers: Sequence[Answer], workers: int, metrics: str) -> Figures:
    """Of all answers; times and tokens of those that came whole."""
    good = [answer for answer in answers if answer.error is None]
    times = [answer.ttft for answer in good if answer.ttft is not None]
    prompt = sum(answer.prompt_tokens for answer in good)
    seconds = max(a.ended for a in answers) - min(a.began for a in answers)
    served = Counter(answer.worker for answer in answers)
    return Figures(
        requests=len(answers),
        errors=len(answers) - len(good),
        ttft_p50=percentile(times, 0.5),
        ttft_p90=percentile(times, 0.9),
        hit_share=sum(answer.cached_tokens for answer in good) / max(prompt, 1),
        output_tokens_per_second=sum(answer.output_tokens for answer in good) / seconds,
        imbalance=max(served.values()) * workers / len(answers),
        predicted_cached_tokens=total(metrics, PREDICTED),
        delivered_cached_tokens=total(metrics, DELIVERED),
        prompt_tokens=prompt,
        seconds=seconds,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank: a value that was really measured."""
    return sorted(values)[max(0, ceil(share * len(values)) - 1)] if values else float("nan")


def total(metrics: str, name: str) -> float:
    """A counter's sum over all its labels."""
    families = text_string_to_metric_families(metrics)
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def median(runs: Sequence[Figures]) -> Figures:
    """Figure by figure."""
    return Figures(**{name: statistics.median(asdict(run)[name] for run in runs) for name in asdict(runs[0])})


def against(base: Figures, new: Figures) -> dict[str, tuple[float, float, bool]]:
    """What `prefix_cost` shall reach where prefixes are shared, against `random`: name -> figure, target, reached."""
    wanted = {
        "TTFT p50 lower by": (1 - new.ttft_p50 / base.ttft_p50, 0.77, 1),
        "TTFT p90 lower by": (1 - new.ttft_p90 / base.ttft_p90, 0.50, 1),
        "hit share": (new.hit_share, 0.80, 1),
        "output tokens/s higher by": (new.output_tokens_per_second / base.output_tokens_per_second - 1, 0.16, 1),
        "busiest worker over the mean by": (new.imbalance - 1, 0.10, -1),
        "predicted off delivered by": (abs(new.predicted_to_delivered - 1), 0.10, -1),
    }
    return {name: (got, target, (got - target) * way >= 0) for name, (got, target, way) in wanted.items()}


def as_table(case: str, outcomes: Mapping[str, Figures]) -> Table:
    """One row a policy."""
    heads = ("TTFT p50", "p90", "hit share", "out tok/s", "max/mean", "predicted", "delivered", "seconds", "errors")
    table = Table(case, *heads, box=None, header_style="bold", pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, run in outcomes.items():
        table.add_row(
            name,
            f"{run.ttft_p50:.2f} s",
            f"{run.ttft_p90:.2f} s",
            f"{run.hit_share:.1%}",
            f"{run.output_tokens_per_second:.1f}",
            f"{run.imbalance:.2f}",
            f"{run.predicted_cached_tokens:.0f}",
            f"{run.delivered_cached_tokens:.0f}",
            f"{run.seconds:.0f}",
            f"{run.errors:.0f} of {run.requests:.0f}",
        )
    return table


def as_targets(base: Figures, new: Figures) -> Table:
    table = Table("prefix_cost against random", "is", "wanted", "", box=None, header_style="bold", pad_edge=False)
    for name, (got, target, reached) in against(base, new).items():
        word = "at most" if "over the mean" in name or "off" in name else "at least"
        table.add_row(name, f"{got:.1%}", f"{word} {target:.0%}", "reached" if reached else "MISSED")
    return table
