"""From runs to figures: every mode's run against the plain ones just before and after it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median


@dataclass(slots=True)
class Spent:
    """Seconds and what came of them. `tokens`: over all rows, without those that the prompts gave."""

    wall: float = 0.0
    cpu: float | None = None
    tokens: int = 0

    def add(self, wall: float, cpu: float | None, tokens: int) -> None:
        self.wall += wall
        self.cpu = None if cpu is None else (self.cpu or 0.0) + cpu
        self.tokens += tokens


@dataclass(slots=True)
class Run:
    """All prompts of a set, decoded once in one mode. `full`: of the steps in which no seat was empty. `row_steps`:
    rows, summed over steps. `nodes`: tokens verified, the roots among them; `drafted`: steps that drafted. `outputs`:
    by prompt, what was said."""

    every: Spent = field(default_factory=Spent)
    full: Spent = field(default_factory=Spent)
    steps: int = 0
    row_steps: int = 0
    nodes: int = 0
    drafted: int = 0
    outputs: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Trial:
    """A mode's run between two plain ones."""

    before: Run
    run: Run
    after: Run


@dataclass(frozen=True, slots=True)
class Spread:
    """One value a round. Raises ValueError without any."""

    rounds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.rounds:
            raise ValueError("a spread needs at least one round")

    @property
    def median(self) -> float:
        return median(self.rounds)

    @property
    def low(self) -> float:
        return min(self.rounds)

    @property
    def high(self) -> float:
        return max(self.rounds)


@dataclass(frozen=True, slots=True)
class Difference:
    """An answer that is not what plain decoding said. `prompt`: which of the set; `at`: the first answer token that
    differs; `margin`: how far the model's two best logits lie apart there."""

    prompt: int
    at: int
    margin: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one set, batch and mode. A speed-up is plain's seconds a token over the mode's: above 1 is quicker than plain.
    `cpu` and `full_cpu` None: no CPU seconds; `full` None: the batch was never full. The rest is over all rounds;
    `full_share`: of the tokens, those that came while no seat was empty; `rows`: answers that were compared."""

    cpu: Spread | None
    wall: Spread
    full_cpu: Spread | None
    full: Spread | None
    tokens_a_row_step: float
    nodes_a_step: float
    drafted: float
    full_share: float
    cpu_a_token: float | None
    wall_a_token: float
    rows: int
    differing: tuple[Difference, ...]

    @property
    def speed_up(self) -> Spread:
        """By the clock that other programs disturb least."""
        return self.wall if self.cpu is None else self.cpu

    @property
    def full_speed_up(self) -> Spread | None:
        return self.full if self.cpu is None else self.full_cpu


def figures(trials: Sequence[Trial], differing: Sequence[Difference]) -> Figures:
    runs = [trial.run for trial in trials]
    tokens, steps = sum(run.every.tokens for run in runs), sum(run.steps for run in runs)
    has_cpu = all(run.every.cpu is not None for run in runs)
    return Figures(
        cpu=speed_up(trials, lambda run: cost(run.every.cpu, run.every.tokens)),
        wall=certain(speed_up(trials, lambda run: cost(run.every.wall, run.every.tokens))),
        full_cpu=speed_up(trials, lambda run: cost(run.full.cpu, run.full.tokens)),
        full=speed_up(trials, lambda run: cost(run.full.wall, run.full.tokens)),
        tokens_a_row_step=tokens / sum(run.row_steps for run in runs),
        nodes_a_step=sum(run.nodes for run in runs) / steps,
        drafted=sum(run.drafted for run in runs) / steps,
        full_share=sum(run.full.tokens for run in runs) / tokens,
        cpu_a_token=sum(run.every.cpu or 0.0 for run in runs) / tokens if has_cpu else None,
        wall_a_token=sum(run.every.wall for run in runs) / tokens,
        rows=sum(len(run.outputs) for run in runs),
        differing=tuple(differing),
    )


def cost(seconds: float | None, tokens: int) -> float | None:
    """Seconds a token; None where there were none of either."""
    return seconds / tokens if seconds and tokens else None


def speed_up(trials: Sequence[Trial], cost_of: Callable[[Run], float | None]) -> Spread | None:
    """By round, the mean cost of the plain runs before and after over the mode's. None where a round has no cost."""
    found = []
    for trial in trials:
        before, own, after = cost_of(trial.before), cost_of(trial.run), cost_of(trial.after)
        if before is None or own is None or after is None:
            return None
        found.append((before + after) / 2 / own)
    return Spread(tuple(found))


def certain(spread: Spread | None) -> Spread:
    """Every run has decoded something and taken time. Raises ValueError otherwise."""
    if spread is None:
        raise ValueError("nothing was decoded: every answer ended with its first token")
    return spread


def noise(plains: Sequence[Run]) -> list[Trial]:
    """Each plain run against the one before it: what the machine's own unrest is worth."""
    return [Trial(one, other, one) for one, other in pairwise(plains)]
