"""What an optional part needs."""

import sys

import pytest

from backends.extras import complaint, started


def test_nothing_is_said_where_all_is_there() -> None:
    assert complaint("prefix-worker x", ("json", "asyncio")) is None


def test_all_that_is_missing_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "json", None)
    said = complaint("prefix-worker x", ("json", "asyncio", "no_such_module"))
    assert said is not None
    assert said.startswith("prefix-worker x needs the extra medusa: json, no_such_module cannot be found; pip install ")


@pytest.mark.torch
def test_faults_missing_parts_and_a_stop_have_their_own_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped() -> int:
        raise KeyboardInterrupt

    assert started("prefix-worker x", [], lambda: 0) == 0
    assert started("prefix-worker x", [], stopped) == 130
    assert started("prefix-worker x", ["--y: no"], lambda: 0) == 2
    monkeypatch.setitem(sys.modules, "torch", None)
    assert started("prefix-worker x", [], lambda: 0) == 1
