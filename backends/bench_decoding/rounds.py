"""The order of runs: plain, a mode, plain, the next mode, plain, and so on, so that what changes on the machine in the
meantime meets both sides of every comparison."""

from collections.abc import Callable, Mapping, Sequence

from backends.bench_decoding.figures import Run, Trial, noise
from backends.bench_decoding.modes import PLAIN

Runner = Callable[[], Run]


def interleaved(
    runners: Mapping[str, Runner], rounds: int, told: Callable[[str], None] = lambda name: None
) -> dict[str, list[Trial]]:
    """By mode, its trials, one a round; plain's are the plain runs against each other. `runners` has plain among them;
    `told` hears of every run before it begins."""

    def done(name: str) -> Run:
        told(name)
        return runners[name]()

    trials: dict[str, list[Trial]] = {name: [] for name in runners}
    plains = [done(PLAIN)]
    for _ in range(rounds):
        for name in runners:
            if name != PLAIN:
                run = done(name)
                plains.append(done(PLAIN))
                trials[name].append(Trial(plains[-2], run, plains[-1]))
        if len(runners) == 1:
            plains.append(done(PLAIN))
    trials[PLAIN] = noise(plains)
    return trials


def runs(modes: Sequence[str], rounds: int) -> int:
    """How many runs that is."""
    return 1 + rounds * max(1, 2 * (len(modes) - 1))
