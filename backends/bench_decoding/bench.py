"""The whole measurement: set by set and batch by batch, all modes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from backends.bench_decoding.differing import differences, margin_after
from backends.bench_decoding.figures import figures
from backends.bench_decoding.first_token import FirstToken, first_token
from backends.bench_decoding.lane import Lane
from backends.bench_decoding.measured import Measured
from backends.bench_decoding.meter import Clocks
from backends.bench_decoding.modes import BUDGET, MODES, PLAIN, Mode
from backends.bench_decoding.prefilled import Prefilled
from backends.bench_decoding.rounds import Runner, interleaved
from backends.medusa.batch import Batch, Settings
from backends.medusa.costs import Costs
from backends.medusa.drafting import Drafter
from backends.medusa.heads_file import HeadsFile
from backends.medusa.kv import Slab
from backends.medusa.model import Llama

PREFIX, FRESH = 1000, 32  # tokens of a prompt that were computed before, and new ones


class TooLongError(Exception):
    """Prompts and answers do not fit the model's context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured. `most_tokens`: of an answer, the first among them; `tree`: candidates that heads draft for a
    row, its root among them."""

    modes: Sequence[str] = tuple(MODES)
    batches: Sequence[int] = (1, 2, 4, 8, 16)
    rounds: int = 3
    most_tokens: int = 128
    tree: int = 16


@dataclass(slots=True)
class Bench:
    """A model that is open, its heads by the flag they came from, and what a pass through it costs. `end`: the token
    that ends an answer. `told` hears of everything before it begins."""

    name: str
    model: Llama
    end: int
    heads: Mapping[str, HeadsFile]
    costs: Costs
    clocks: Clocks
    told: Callable[[str], None] = lambda line: None
    _drafters: dict[tuple[str, int], Drafter] = field(default_factory=dict)

    def measure(self, of: str, prompts: Sequence[Sequence[int]], plan: Plan) -> Iterator[Measured]:
        """One set of prompts, figures as they come. Raises TooLongError."""
        self.told(f"{of}: computing {len(prompts)} prompts")
        ready = self.prefilled(prompts, plan.most_tokens)
        for batch in plan.batches:
            yield from self._at(of, ready, batch, plan)

    def prefilled(self, prompts: Sequence[Sequence[int]], most_tokens: int) -> list[Prefilled]:
        longest = max(map(len, prompts))
        room = self.model.shape.context - most_tokens - BUDGET
        if longest > room:
            raise TooLongError(f"a prompt of {longest} tokens leaves no room in the model's context; {room} would fit")
        self.model.taps = self._tapped
        batch = self._batch(MODES[PLAIN], self._slab(1, longest + 1 + BUDGET), 1)
        return [Prefilled.computed(batch, prompt) for prompt in prompts]

    def first_token(self, prompts: Sequence[Sequence[int]], rounds: int) -> FirstToken:
        """Prompts are cut and joined to what is needed. Raises TooLongError where all of them are not enough."""
        wanted = PREFIX + FRESH * rounds
        ids = [token for prompt in prompts for token in prompt][:wanted]
        if len(ids) < wanted or self.model.shape.context < PREFIX + FRESH + 1 + BUDGET:
            raise TooLongError(f"a first token after {PREFIX} tokens needs {wanted} tokens of prompts and their room")
        fresh = [ids[at : at + FRESH] for at in range(PREFIX, wanted, FRESH)]
        self.told(f"first token after {PREFIX} tokens")
        self.model.taps = ()
        batch = self._batch(MODES[PLAIN], self._slab(1, PREFIX + FRESH + 1 + BUDGET), 1)
        return first_token(batch, ids[:PREFIX], fresh, self.clocks)

    def _at(self, of: str, prompts: Sequence[Prefilled], batch: int, plan: Plan) -> Iterator[Measured]:
        longest = max(len(prompt.prompt) for prompt in prompts)
        most_nodes = max(MODES[name].most_nodes(batch) for name in plan.modes)
        slab = self._slab(batch, longest + plan.most_tokens + most_nodes)
        runners = {name: self._runner(name, slab, prompts, batch, plan) for name in [PLAIN, *plan.modes]}
        trials = interleaved(runners, plan.rounds, lambda name: self.told(f"{of}, batch {batch}: {name}"))
        for name in plan.modes:
            differing = differences(
                trials[name], lambda prompt, answer: margin_after(self.model, slab, prompts[prompt], answer)
            )
            yield Measured(of=of, batch=batch, mode=name, figures=figures(trials[name], list(differing)))

    def _runner(self, name: str, slab: Slab, prompts: Sequence[Prefilled], batch: int, plan: Plan) -> Runner:
        mode = MODES[name]
        heads = self.heads[mode.heads] if mode.heads is not None else None
        lane = Lane(
            self._batch(mode, slab, batch, self._drafter(mode, plan.tree)),
            width=batch,
            most_tokens=plan.most_tokens,
            end=self.end,
            taps=heads.taps if heads is not None else (),
            tapped=self._tapped,
        )
        return lambda: lane.run(prompts, self.clocks)

    def _batch(self, mode: Mode, slab: Slab, width: int, drafter: Drafter | None = None) -> Batch:
        """With costs of its own, since it learns."""
        costs = Costs(self.costs.curve, self.costs.per_row, self.costs.per_seen)
        whole = mode.whole > 0
        settings = Settings(look=mode.look, always=whole, whole=whole, most_nodes=mode.most_nodes(width))
        return Batch(self.model, slab, costs, self.clocks.best, drafter, settings)

    def _drafter(self, mode: Mode, tree: int) -> Drafter | None:
        """Packed once for each size of tree."""
        if mode.heads is None:
            return None
        key = mode.heads, mode.whole or tree
        if key not in self._drafters:
            heads = self.heads[mode.heads]
            self._drafters[key] = Drafter(
                heads.kind, heads.weights, self.model.embedding, heads.ids, heads.tree(key[1])
            )
        return self._drafters[key]

    def _slab(self, rows: int, length: int) -> Slab:
        return Slab(self.model.shape, rows, length, self.model.dtype, self.model.device)

    @property
    def _tapped(self) -> tuple[int, ...]:
        """Every layer that some heads look at, ascending."""
        return tuple(sorted({layer for heads in self.heads.values() for layer in heads.taps}))
