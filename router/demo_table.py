"""What the demo shows: progress while it measures, then both policies side by side, for people or as JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from router.clock import monotonic
from router.demo_client import Answer

PLAIN_INTERVAL = 3.0  # seconds between two lines of progress where no bar can be drawn


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy's figures: seconds, and shares from 0 to 1. None where no answer came."""

    requests: int
    errors: int
    ttft_p50: float | None
    ttft_p90: float | None
    cached_share: float
    output_tokens_per_second: float
    requests_per_worker: dict[str, int]
    prompt_tokens: int
    seconds: float

    @property
    def imbalance(self) -> float:
        """The busiest worker's requests, relative to the mean."""
        counts = self.requests_per_worker.values()
        return max(counts, default=0) * len(counts) / (sum(counts) or 1)


def summarise(answers: Sequence[Answer], workers: Sequence[str]) -> Outcome:
    """Figures of all answers; times and tokens of those that came whole."""
    good = [answer for answer in answers if answer.error is None]
    times = [answer.ttft for answer in good if answer.ttft is not None]
    usages = [answer.usage for answer in good if answer.usage is not None]
    prompt = sum(usage.prompt_tokens for usage in usages)
    cached = sum(usage.prompt_tokens_details.cached_tokens for usage in usages if usage.prompt_tokens_details)
    seconds = max((a.ended for a in answers), default=0.0) - min((a.began for a in answers), default=0.0)
    served = Counter(answer.worker for answer in answers)
    return Outcome(
        requests=len(answers),
        errors=len(answers) - len(good),
        ttft_p50=percentile(times, 0.5),
        ttft_p90=percentile(times, 0.9),
        cached_share=cached / prompt if prompt else 0.0,
        output_tokens_per_second=sum(usage.completion_tokens for usage in usages) / seconds if seconds else 0.0,
        requests_per_worker={worker: served[worker] for worker in workers},
        prompt_tokens=prompt,
        seconds=seconds,
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest rank: a value that was really measured."""
    return sorted(values)[max(0, ceil(share * len(values)) - 1)] if values else None


def as_json(url: str, outcomes: Mapping[str, Outcome]) -> str:
    policies = {name: _rounded(asdict(outcome)) for name, outcome in outcomes.items()}
    return json.dumps({"url": url, "policies": policies}, indent=2)


def as_table(outcomes: Mapping[str, Outcome]) -> Table:
    """One row a figure, one column a policy: it fits into 80 columns however long the figures are."""
    table = Table("", *outcomes, box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    shown = list(outcomes.values())
    table.add_row("time to first token, median", *(_time(each.ttft_p50) for each in shown))
    table.add_row("time to first token, 90%", *(_time(each.ttft_p90) for each in shown))
    table.add_row("prompt tokens from cache", *(f"{each.cached_share:.0%}" for each in shown))
    table.add_row("output tokens a second", *(f"{each.output_tokens_per_second:,.0f}" for each in shown))
    table.add_row("requests per worker", *(" ".join(map(str, each.requests_per_worker.values())) for each in shown))
    table.add_row("busiest worker / mean", *(f"{each.imbalance:.2f}" for each in shown))
    table.add_row("requests", *(str(each.requests) for each in shown))
    table.add_row("errors", *(str(each.errors) for each in shown))
    return table


def in_words(name: str, new: Outcome, base_name: str, base: Outcome) -> str:
    """The gain, or the loss, in a sentence."""
    if not new.ttft_p50 or not base.ttft_p50:
        return f"{name} and {base_name} cannot be compared: there were no answers."
    change = 1 - new.ttft_p50 / base.ttft_p50
    times = f" ({new.cached_share / base.cached_share:.1f} times as much)" if base.cached_share else ""
    return (
        f"With {name} the median first token came {abs(change):.0%} {'sooner' if change >= 0 else 'LATER'} than with "
        f"{base_name}: {new.cached_share:.0%} of the prompt tokens were in a cache already instead of "
        f"{base.cached_share:.0%}{times}."
    )


class Screen:
    """Where the demo speaks. With `quiet_output` all of it goes to standard error."""

    def __init__(self, quiet_output: bool) -> None:
        self.console = Console(stderr=quiet_output, highlight=False, soft_wrap=True)

    def say(self, text: str, style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False)

    def table(self, outcomes: Mapping[str, Outcome]) -> None:
        self.console.print()
        self.console.print(as_table(outcomes))
        self.console.print()

    def running(self, policy: str, total: int) -> Running:
        return Running(self, policy, total)


class Running:
    """Progress of one load: a bar on a terminal, a line now and then elsewhere. Its owner draws it, no thread does."""

    def __init__(self, screen: Screen, policy: str, total: int) -> None:
        self._screen = screen
        self._policy = policy
        self._total = total
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._next_line = monotonic() + PLAIN_INTERVAL

    def __enter__(self) -> Self:
        if self._screen.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[live]}"))
            self._bar = Progress(*columns, console=self._screen.console, auto_refresh=False)
            self._task = self._bar.add_task(f"{self._policy:12}", total=self._total, live="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, answers: Sequence[Answer]) -> None:
        now = summarise(answers, ())
        live = f"{now.requests}/{self._total}, first token {_time(now.ttft_p50)}, {now.cached_share:.0%} cached"
        if now.errors:
            live += f", {now.errors} errors"
        if self._bar is not None:
            self._bar.update(self._task, completed=now.requests, live=live, refresh=True)
        elif monotonic() >= self._next_line or now.requests == self._total:
            self._next_line = monotonic() + PLAIN_INTERVAL
            self._screen.say(f"{self._policy}: {live}")


def print_json(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"


def _rounded(values: Mapping[str, object]) -> dict[str, object]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
