"""Descriptors kept back: given out when none is free, taken back later."""

import errno
import resource
from collections.abc import Iterator

import pytest

from router.proxy import reserve
from router.proxy.reserve import Reserve, raised_limit


@pytest.fixture
def held() -> Iterator[Reserve]:
    made = Reserve()
    yield made
    made.empty()
    assert len(made) == 0


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (40, 0), (41, 0), (100, 30), (256, 108), (10**6, 4096)])
def test_half_of_what_is_not_the_process_own_is_held(
    held: Reserve, limit: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit == 10**6:
        monkeypatch.setattr(reserve, "MOST", count := 50)
    held.fill(limit)
    assert len(held) == count


def test_it_gives_only_what_it_has_and_only_where_that_helps(held: Reserve) -> None:
    assert not held.give(OSError(errno.EMFILE, ""))
    held.fill(44)
    assert not held.give(OSError(errno.ECONNREFUSED, ""))
    assert [held.give(OSError(errno.EMFILE, "")) for _ in range(3)] == [True, True, False]
    held.refill()
    assert len(held) == 2


def test_when_none_is_free_it_holds_what_it_could_get(held: Reserve) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        held.fill(140)
        held.give(OSError(errno.EMFILE, ""))
        resource.setrlimit(resource.RLIMIT_NOFILE, (8, hard))
        held.refill()
        assert len(held) == 49
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    held.refill()
    assert len(held) == 50


def test_the_soft_limit_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: told.append(pair))
    for given, most in {(256, 4096): 4096, (256, resource.RLIM_INFINITY): 65_536, (4096, 4096): 4096}.items():
        monkeypatch.setattr(resource, "getrlimit", lambda _, given=given: given)
        assert raised_limit() == most
    assert told == [(4096, 4096), (65_536, resource.RLIM_INFINITY)]
    monkeypatch.undo()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits


def test_a_system_that_does_not_allow_it_is_taken_at_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raised_limit() == 256
