"""A replay from its plan to its figures: set the load, run every policy on the same arrivals, once for each seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

import msgspec

from router.replay.arrivals import Arrivals
from router.replay.calibrate import GOOD, capacity, scale_for
from router.replay.figures import WARM, Figures, averaged, figures, spread_of
from router.replay.item import Request
from router.replay.reference import CALIBRATING_BETA, Reference
from router.replay.routing import TABLE_HASHES, Routed, Router
from router.replay.rows import Row
from router.replay.simulate import Dice, Setup, Simulation
from router.replay_policies import Entrant

AFTER = (0.5, 0.6)  # of the requests: the tenth that follows a change of workers
TENTHS = 10
SHOWN_EACH_TENTH = ("ttft_mean", "ttft_p99", "hit_share", "inside_target")


class Plan(msgspec.Struct, frozen=True):
    """Everything that a replay is given but its policies.

    busy: loads, by the share of time that prefill is busy with the reference; scales: by multiples of the trace's rate
    told: the workers' speeds are configured as weights; usage: workers report tokens
    copies: of each session, or of a whole trace without sessions; table: prefix hashes that each replica remembers
    """

    trace: str
    setup: Setup
    busy: tuple[float, ...] = (0.5,)
    scales: tuple[float, ...] = ()
    seed: int = 0
    seeds: int = 1
    copies: int = 1
    told: bool = False
    usage: bool = True
    table: int = TABLE_HASHES


class Outcome(msgspec.Struct):
    """One policy at one load. `spread`: least and greatest of the seeds' figures; `after`: of the tenth that follows a
    change of workers; `capacity`: the scale that it carries, where that was asked; `times`: TTFTs of the first seed."""

    figures: Figures
    spread: dict[str, tuple[float, float]]
    after: Figures | None = None
    tenths: list[dict[str, float]] = []
    times: list[float] = []
    capacity: float | None = None


class Load(msgspec.Struct):
    """One load: what was asked for, the trace's time scale for it, and what the reference then reached."""

    busy: float | None
    scale: float | None
    reached: float | None
    policies: dict[str, Outcome] = {}


class Watcher(Protocol):
    """Who shows progress: told of each run as it begins, and of requests as they end."""

    def begin(self, label: str, requests: int) -> Callable[[int], None] | None: ...


def dice_of(seed: int) -> Dice:
    return lambda name: Random(f"{seed}:{name}")  # noqa: S311 - a simulation's


class Runner:
    def __init__(self, rows: Sequence[Row], plan: Plan, watcher: Watcher) -> None:
        self._plan = plan
        self._watcher = watcher
        self._arrivals = {
            seed: Arrivals(rows, dice_of(seed)("arrivals"), plan.copies)
            for seed in range(plan.seed, plan.seed + plan.seeds)
        }

    def loads(self, entrants: Sequence[Entrant]) -> list[Load]:
        """Every policy at every load."""
        if self._plan.scales:
            return [
                Load(None, scale, None, {entrant.label: self._outcome(entrant, scale) for entrant in entrants})
                for scale in self._plan.scales
            ]
        found, guess = [], 1.0
        for busy in self._plan.busy:
            guess, reached = scale_for(busy, self._reference_busy, guess)
            outcomes = {entrant.label: self._outcome(entrant, guess) for entrant in entrants}
            found.append(Load(busy, guess, reached, outcomes))
        return found

    def capacities(self, entrants: Sequence[Entrant]) -> Load:
        """The highest scale that each policy carries with `GOOD` of the requests inside the target."""
        return Load(None, None, None, {entrant.label: self._carried(entrant) for entrant in entrants})

    def _carried(self, entrant: Entrant) -> Outcome:
        seen: dict[float, Outcome] = {}

        def inside(scale: float) -> float:
            seen[scale] = self._outcome(entrant, scale)
            return seen[scale].figures.inside_target

        scale = capacity(inside, GOOD)
        outcome = seen.get(scale) or seen[min(seen)]
        outcome.capacity = scale
        return outcome

    def _outcome(self, entrant: Entrant, scale: float) -> Outcome:
        changes = bool(self._plan.setup.change)
        each, after, tenths = [], [], []
        times: list[float] = []
        for seed, arrivals in self._arrivals.items():
            run = self._run(entrant, arrivals.at(scale), seed)
            each.append(figures(run))
            if changes:
                after.append(figures(run, *AFTER))
            if len(run.requests) >= TENTHS:
                tenths.append([figures(run, at / TENTHS, (at + 1) / TENTHS) for at in range(TENTHS)])
            times = times or sorted(request.ttft for request in run.requests[int(len(run.requests) * WARM) :])
        return Outcome(
            averaged(each), spread_of(each), averaged(after) if after else None,
            [_shown(averaged(same)) for same in zip(*tenths, strict=True)], times,
        )  # fmt: skip

    def _run(self, entrant: Entrant, requests: Sequence[Request], seed: int) -> Simulation:
        plan, setup = self._plan, self._plan.setup
        make = entrant.make
        shares = setup.share and setup.replicas > 1

        def router(dice: Random) -> Router:
            if make is None:
                return entrant.reference()
            return Routed(make, dice, room=setup.room, told=plan.told, usage=plan.usage, shares=shares,
                          alone=setup.replicas == 1, table=plan.table)  # fmt: skip

        run = Simulation(requests, setup, router, dice_of(seed), foresight=make is None)
        return run.run(self._watcher.begin(entrant.label, len(requests)))

    def _reference_busy(self, scale: float) -> float:
        """Of one replica that knows all, with no change of workers, on the first seed's arrivals."""
        plan = self._plan
        setup = msgspec.structs.replace(plan.setup, replicas=1, change="")
        requests = self._arrivals[plan.seed].at(scale)
        run = Simulation(requests, setup, lambda _: Reference(CALIBRATING_BETA), dice_of(plan.seed), foresight=True)
        return figures(run.run(self._watcher.begin("setting the load", len(requests))), 0.0).busy


def _shown(figure: Figures) -> dict[str, float]:
    return {name: float(getattr(figure, name)) for name in SHOWN_EACH_TENTH}
