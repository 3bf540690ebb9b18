"""What drafting does, in Prometheus' text form: vLLM's names where it has them, the worker's own for the rest.

Steps that also compute a part of a prompt are left out of what is counted by rows: they say nothing about drafting.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from backends.medusa.batch import Batch
from backends.medusa.tally import Tally
from backends.metrics import escape

OWN = "prefix_worker"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A copy that nobody changes any more. `gains`: by the largest number of rows of a bucket, how many times as many
    tokens a second drafting makes, as far as it was tried."""

    tally: Tally
    gains: Mapping[int, float]


def bucket(rows: int) -> int:
    """1, 2, 4, 8 and so on: the largest number of rows that is counted together with this one."""
    return 1 << (rows - 1).bit_length()


def acceptance_of(batch: Batch) -> Acceptance:
    drafted = sorted({bucket(rows) for rows in batch.tally.drafts})
    return Acceptance(batch.tally.copy(), {rows: batch.switch.gain(rows) for rows in drafted})


def by_bucket(counts: Mapping[int, float]) -> dict[str, float]:
    found: Counter[int] = Counter()
    for rows, count in counts.items():
        found[bucket(rows)] += count  # type: ignore[assignment]
    return {f',rows="{rows}"': found[rows] for rows in sorted(found)}


def by_position(counts: Mapping[tuple[str, int], int]) -> dict[str, float]:
    """vLLM's positions count from 0, depths from 1."""
    found: Counter[int] = Counter()
    for (_, depth), count in counts.items():
        found[depth - 1] += count
    return {f',position="{position}"': found[position] for position in sorted(found)}


def by_source(counts: Mapping[tuple[str, int], int]) -> dict[str, float]:
    return {f',source="{source}",depth="{depth}"': counts[source, depth] for source, depth in sorted(counts)}


def decoding_text(model: str, seen: Acceptance) -> str:
    label, tally, lines = f'model_name="{escape(model)}"', seen.tally, list[str]()

    def family(kind: str, name: str, help_text: str, samples: Mapping[str, float]) -> None:
        lines.extend([f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"])
        lines.extend(f"{name}{{{label}{more}}} {value}" for more, value in samples.items())

    def count(name: str, help_text: str, samples: Mapping[str, float]) -> None:
        family("counter", name, help_text, samples)

    spec = "vllm:spec_decode_num"
    count(f"{spec}_drafts_total", "Number of spec decoding drafts.", {"": tally.guessed})
    count(f"{spec}_draft_tokens_total", "Number of draft tokens.", {"": tally.guesses})
    count(f"{spec}_accepted_tokens_total", "Number of accepted tokens.", {"": sum(tally.right.values())})
    count(f"{spec}_accepted_tokens_per_pos_total", "Accepted tokens per draft position.", by_position(tally.right))
    by_rows = "by rows in the step (at most so many)."
    count(f"{OWN}_steps_total", f"Decoding steps, {by_rows}", by_bucket(tally.steps))
    rows = {size: size * number for size, number in tally.steps.items()}
    count(f"{OWN}_row_steps_total", f"Rows that were in these steps, {by_rows}", by_bucket(rows))
    count(
        f"{OWN}_step_nodes_total",
        f"Tokens that these steps verified, roots included, {by_rows}",
        by_bucket(tally.nodes),
    )
    count(f"{OWN}_step_tokens_total", f"Tokens that these steps made, {by_rows}", by_bucket(tally.tokens))
    count(f"{OWN}_step_seconds_total", f"Seconds of these steps without drafting, {by_rows}", by_bucket(tally.seconds))
    count(f"{OWN}_drafts_total", f"Those of these steps that ran the heads, {by_rows}", by_bucket(tally.drafts))
    count(f"{OWN}_draft_seconds_total", f"Seconds of running the heads, {by_rows}", by_bucket(tally.draft_seconds))
    guesses = "guesses after right ones, by source and by tokens ahead of the sure one"
    count(f"{OWN}_guesses_tried_total", f"Verified {guesses}.", by_source(tally.tried))
    count(f"{OWN}_guesses_right_total", f"Accepted {guesses}.", by_source(tally.right))
    gains = {f',rows="{rows}"': gain for rows, gain in seen.gains.items()}
    family("gauge", f"{OWN}_drafting_gain", "Tokens a second with heads, by those without, as judged last.", gains)
    return "\n".join(lines) + "\n"
