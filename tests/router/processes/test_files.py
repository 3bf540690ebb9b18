"""Open files: enough, enough once the soft limit is raised, and too few."""

import resource

import pytest

from router.processes.files import EACH, OWN, too_few_files

NEEDED = OWN + 4 * EACH


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits that were set."""
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: told.append(limits))
    return told


def limited(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))


@pytest.mark.parametrize("soft", [NEEDED, NEEDED + 1, resource.RLIM_INFINITY])
def test_enough_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch, raised: list[tuple[int, int]], soft: int) -> None:
    limited(monkeypatch, soft, resource.RLIM_INFINITY)
    assert too_few_files(4) == ""
    assert raised == []


@pytest.mark.parametrize("hard", [NEEDED, resource.RLIM_INFINITY])
def test_a_soft_limit_is_raised(monkeypatch: pytest.MonkeyPatch, raised: list[tuple[int, int]], hard: int) -> None:
    limited(monkeypatch, NEEDED - 1, hard)
    assert too_few_files(4) == ""
    assert raised == [(NEEDED, hard)]


def test_a_hard_limit_is_told(monkeypatch: pytest.MonkeyPatch, raised: list[tuple[int, int]]) -> None:
    limited(monkeypatch, 10, NEEDED - 1)
    assert too_few_files(4) == f"4 processes need at least {NEEDED} open files each, and `ulimit -n` allows 10"
    assert raised == []
