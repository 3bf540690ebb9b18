"""One step over all rows: parts of prompts, and every row's tree, in one pass through the model.

Rows join and leave between any two steps (continuous batching: Yu et al. 2022), prompts are computed in parts beside
the others' decoding (chunked prefill: Agrawal et al. 2024). It is synchronous and knows no HTTP; time comes from the
clock that is handed in.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from backends.medusa.budget import Choice, everything, share
from backends.medusa.candidates import Candidates
from backends.medusa.costs import Costs
from backends.medusa.decoding import Decoding, Request, Work
from backends.medusa.drafting import Drafter
from backends.medusa.kv import Pass, Slab
from backends.medusa.model import Llama
from backends.medusa.reach import Reach
from backends.medusa.sampling import Logprobs, logprobs_of
from backends.medusa.switch import Switch
from backends.medusa.tally import Tally
from backends.medusa.trust import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`prefill_tokens`: prompt tokens a step, over all rows, at least 1; `most_nodes`: nodes a step verifies, roots
    among them; `look`: whether rows look guesses up in their own text; `always`: draft even where it does not pay (to
    measure it); `whole`: verify every candidate, as far as `most_nodes` allows, whatever it costs (a fixed tree, to
    measure it)."""

    prefill_tokens: int = 128
    most_nodes: int = 64
    look: bool = True
    always: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """What a step did for a row. `tokens`: new ones; `began`: its prompt is computed as of this step."""

    row: Decoding
    tokens: list[int]
    began: bool = False
    logprobs: list[Logprobs] = field(default_factory=list)


class Batch:
    """`drafter` None: no heads. A row's seat is taken by `join` and given back by `leave`, once."""

    def __init__(
        self,
        model: Llama,
        slab: Slab,
        costs: Costs,
        clock: Callable[[], float],
        drafter: Drafter | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.model, self.slab, self.drafter = model, slab, drafter
        self.settings = settings or Settings()
        self.rows: list[Decoding] = []
        self.costs, self.switch, self.trust, self.tally = costs, Switch(), Trust(), Tally()
        self._clock, self._reach = clock, Reach()

    def join(self, request: Request, computed: int = 0, seat: int | None = None) -> Decoding:
        """A new row; the first `computed` tokens of its prompt lie at `seat` already, but not all: the last one's state
        is needed. Raises IndexError when no seat is free, ValueError when prompt and answer do not fit one or are
        empty; then a seat that was handed over is still the caller's."""
        longest = min(self.slab.length - self.settings.most_nodes, self.model.shape.context)
        if len(request.prompt) + request.most_tokens > longest:
            raise ValueError(f"prompt and answer are longer than {longest} tokens")
        if request.most_tokens < 1 or not 0 <= computed < len(request.prompt):
            raise ValueError("at least one token of the prompt has to be left to compute, and one to generate")
        row = Decoding(request, self.slab.take() if seat is None else seat, computed)
        self.rows.append(row)
        return row

    def leave(self, row: Decoding) -> None:
        """Between steps, at any time, once. Raises ValueError for a row that is not here."""
        self.rows.remove(row)
        self.slab.give(row.seat)

    @torch.no_grad()
    def step(self) -> list[Progress]:
        """One pass. Rows that are finished take no part: they only wait to leave."""
        began = self._clock()
        decoding = [row for row in self.rows if not row.prefilling and row.finished is None]
        parts = self._parts()
        prompt_tokens = sum(len(work.tokens) for _, work in parts)
        chosen, drafted, without = self._propose(decoding, prompt_tokens, began)
        works = [row.verify(*pair) for row, pair in zip(decoding, chosen, strict=True)]
        every = [*works, *(work for _, work in parts)]
        if not every:
            return []
        hidden, states = self._forward(every)
        found = self._accept(decoding, works, hidden, states)
        found += self._prefilled(parts, sum(len(work.tokens) for work in works), hidden, states)
        if decoding and not parts:
            self._learn(decoding, works, found, drafted, without, self._clock() - began - drafted)
        return found

    def _parts(self) -> list[tuple[Decoding, Work]]:
        """The next parts of prompts, oldest row first."""
        found, left = [], self.settings.prefill_tokens
        for row in self.rows:
            if row.prefilling and left:
                work = row.prefill(left)
                left -= len(work.tokens)
                found.append((row, work))
        return found

    def _propose(
        self, rows: Sequence[Decoding], prompt_tokens: int, began: float
    ) -> tuple[list[tuple[Candidates, list[int]]], float, float]:
        """Every row's candidates and the nodes of them to verify; the seconds that drafting took (0: none), and the
        tokens a second that this step could have expected without (0: not asked)."""
        if not rows:
            return [], 0.0, 0.0
        draft, drafted, without = None, 0.0, 0.0
        if self.drafter is not None and (self.settings.always or self.switch.on(len(rows))):
            states = torch.stack([row.states for row in rows if row.states is not None])
            limits = (0.0, 0.0) if self.settings.whole else (self._reach.floor, self._reach.worth)
            draft = self.drafter.draft(states, [row.root for row in rows], *limits)
            drafted = self._clock() - began
            bare = [row.propose(None, None, 0, self.trust, look=self.settings.look) for row in rows]
            without = self._share(bare, rows, prompt_tokens, 0.0).rate
        tree = self.drafter.tree if self.drafter is not None else None
        candidates = [
            row.propose(tree, draft, index, self.trust, look=self.settings.look) for index, row in enumerate(rows)
        ]
        choice = self._share(candidates, rows, prompt_tokens, drafted)
        if draft is not None:
            self._reach.learn(draft, drafted, choice.rate, least_of(candidates, choice))
        return list(zip(candidates, choice.kept, strict=True)), drafted, without

    def _share(
        self, candidates: Sequence[Candidates], rows: Sequence[Decoding], prompt_tokens: int, drafted: float
    ) -> Choice:
        if self.settings.whole:
            return everything(candidates, self.settings.most_nodes)
        context = mean_length(rows)
        return share(
            candidates,
            lambda nodes: self.costs.step(len(rows), nodes + prompt_tokens, context),
            spent=drafted,
            most=max(self.settings.most_nodes, len(rows)),
        )

    def _forward(self, works: Sequence[Work]) -> tuple[Tensor, Tensor]:
        """One pass over all works: hidden states [N, D], and all that heads may see [N, S, D]."""
        device = self.model.device
        tokens = torch.tensor([token for work in works for token in work.tokens], device=device)
        positions = torch.tensor([position for work in works for position in work.positions], device=device)
        hidden, taps = self.model.forward(tokens, positions, Pass(self.slab, [work.span for work in works]))
        return hidden, torch.stack([hidden, *taps], 1)

    def _accept(
        self, rows: Sequence[Decoding], works: Sequence[Work], hidden: Tensor, states: Tensor
    ) -> list[Progress]:
        nodes = sum(len(work.tokens) for work in works)
        if not nodes:
            return []
        logits = self.model.logits(hidden[:nodes])
        greedy = logits.argmax(-1).tolist()
        found, moves, first = [], [], 0
        for row, work in zip(rows, works, strict=True):
            new = row.accept(chooser(row.request, logits, greedy, first))
            self.trust.learn(row.tried, row.path, row.agreed)
            taken, moved = row.commit(new, states[first + row.path[-1]])
            moves += moved
            self.tally.accepted(len(rows), row.tried, row.path)
            found.append(Progress(row, taken, logprobs=reported(row, logits[first:], row.path, taken)))
            first += len(work.tokens)
        self.slab.gather(moves)
        return found

    def _prefilled(
        self, parts: Sequence[tuple[Decoding, Work]], first: int, hidden: Tensor, states: Tensor
    ) -> list[Progress]:
        found = []
        for row, work in parts:
            first += len(work.tokens)
            row.prefilled(len(work.tokens))
            if not row.prefilling:
                logits = self.model.logits(hidden[first - 1 : first])
                choose = chooser(row.request, logits, logits.argmax(-1).tolist(), 0)
                taken = row.begin(choose(0, ()), states[first - 1])
                found.append(Progress(row, taken, True, reported(row, logits, [0], taken)))
        return found

    def _learn(
        self,
        rows: Sequence[Decoding],
        works: Sequence[Work],
        found: Sequence[Progress],
        drafted: float,
        without: float,
        seconds: float,
    ) -> None:
        context = mean_length(rows)
        nodes = sum(len(work.tokens) for work in works)
        tokens = sum(len(progress.tokens) for progress in found)
        self.tally.step(len(rows), nodes, tokens, drafted, seconds)
        believed = self.costs.learn(len(rows), nodes, context, seconds)
        if drafted:
            without = without or len(rows) / self.costs.step(len(rows), len(rows), context)
            self.switch.learn(len(rows), tokens / without, believed + drafted)


def least_of(candidates: Sequence[Candidates], choice: Choice) -> float:
    """The smallest probability among the nodes that are verified."""
    return min(row.scores[node] for row, kept in zip(candidates, choice.kept, strict=True) for node in kept)


def mean_length(rows: Sequence[Decoding]) -> float:
    return sum(row.length for row in rows) / len(rows)


def chooser(
    request: Request, logits: Tensor, greedy: Sequence[int], first: int
) -> Callable[[int, Collection[int]], int]:
    """The model's choice after a node of a row whose nodes begin at `first` in the pass."""
    sampler = request.sampler
    if sampler is None:
        return lambda node, guesses: greedy[first + node]
    return lambda node, guesses: sampler.choose(logits[first + node], guesses)


def reported(row: Decoding, logits: Tensor, path: Sequence[int], taken: Sequence[int]) -> list[Logprobs]:
    """Of every new token, if the request wants to know; `logits` [.., V] begin with the row's root."""
    count = row.request.logprobs
    if count is None:
        return []
    return [logprobs_of(logits[node], token, count) for node, token in zip(path, taken, strict=False)]
