"""The order of runs."""

import pytest

from backends.bench_decoding.figures import Run
from backends.bench_decoding.modes import PLAIN
from backends.bench_decoding.rounds import Runner, interleaved, runs


@pytest.fixture
def order() -> list[str]:
    return []


@pytest.fixture
def runners(order: list[str]) -> dict[str, Runner]:
    def runner(name: str) -> Runner:
        return lambda: Run(outputs=[[len(order)]])

    return {name: runner(name) for name in (PLAIN, "one", "other")}


def test_every_mode_runs_between_two_plain_ones(runners: dict[str, Runner], order: list[str]) -> None:
    trials = interleaved(runners, 2, order.append)
    assert order == [PLAIN, "one", PLAIN, "other", PLAIN, "one", PLAIN, "other", PLAIN]
    assert len(order) == runs(list(runners), 2)
    for name in ("one", "other"):
        for trial in trials[name]:
            (before,), (own,), (after,) = trial.before.outputs[0], trial.run.outputs[0], trial.after.outputs[0]
            assert (before, after) == (own - 1, own + 1)


@pytest.mark.parametrize("rounds", [1, 3])
def test_plain_alone_is_compared_with_itself(runners: dict[str, Runner], order: list[str], rounds: int) -> None:
    trials = interleaved({PLAIN: runners[PLAIN]}, rounds, order.append)
    assert len(trials[PLAIN]) == rounds
    assert len(order) == rounds + 1 == runs([PLAIN], rounds)
