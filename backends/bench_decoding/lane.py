"""One mode, decoding: rows join and leave, and only the steps are timed.

The batch lives as long as the lane, so that what it learns about costs, trust and its switch is carried from round to
round, as a worker carries it from request to request. A new lane has learned nothing: its first round shows that too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backends.bench_decoding.figures import Run
from backends.bench_decoding.meter import Clocks, Meter
from backends.bench_decoding.prefilled import Prefilled
from backends.medusa.batch import Batch, Progress
from backends.medusa.decoding import Decoding


@dataclass(frozen=True, slots=True)
class Lane:
    """`width`: rows at a time; `most_tokens`, `end`: when an answer is complete; `taps`: the layers that the mode's
    heads look at, `tapped`: those whose states came with the prompts."""

    batch: Batch
    width: int
    most_tokens: int
    end: int
    taps: tuple[int, ...] = ()
    tapped: tuple[int, ...] = ()

    def run(self, prompts: Sequence[Prefilled], clocks: Clocks) -> Run:
        """All prompts, in order: a row that ends gives its seat to the next at once. Taking it in, which copies keys
        and values and indexes the prompt for lookup, is not timed. The end, when no prompt waits and seats stay empty,
        is timed."""
        self.batch.model.taps = self.taps
        taps = [self.tapped.index(layer) for layer in self.taps]
        found, waiting = Run(outputs=[[] for _ in prompts]), list(enumerate(prompts))[::-1]
        running: dict[int, tuple[int, Decoding]] = {}  # by seat
        while waiting or running:
            while waiting and len(running) < self.width:
                index, prompt = waiting.pop()
                row = prompt.joined(self.batch, self.most_tokens, self.end, taps)
                running[row.seat] = index, row
                self._seen_off(row, running, found)
            if running:
                self._step(found, clocks)
                for _, row in list(running.values()):
                    self._seen_off(row, running, found)
        return found

    def _step(self, found: Run, clocks: Clocks) -> None:
        rows, drafts = len(self.batch.rows), self._drafts()
        with Meter(clocks) as meter:
            progress = self.batch.step()
        tokens = sum(len(one.tokens) for one in progress)
        found.every.add(meter.wall, meter.cpu, tokens)
        if rows == self.width:
            found.full.add(meter.wall, meter.cpu, tokens)
        found.steps += 1
        found.row_steps += rows
        found.nodes += nodes_of(progress)
        found.drafted += self._drafts() - drafts

    def _drafts(self) -> int:
        return sum(self.batch.tally.drafts.values())

    def _seen_off(self, row: Decoding, running: dict[int, tuple[int, Decoding]], found: Run) -> None:
        if row.finished is not None:
            index, _ = running.pop(row.seat)
            found.outputs[index] = row.output
            self.batch.leave(row)


def nodes_of(progress: Sequence[Progress]) -> int:
    return sum(len(one.row.tried) for one in progress)
