"""What an optional part needs."""

import sys

import pytest

from backends.extras import complaint


def test_nothing_is_said_where_all_is_there() -> None:
    assert complaint("prefix-worker x", ("json", "asyncio")) is None


def test_all_that_is_missing_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "json", None)
    said = complaint("prefix-worker x", ("json", "asyncio", "no_such_module"))
    assert said is not None
    assert said.startswith("prefix-worker x needs the extra medusa: json, no_such_module cannot be found; pip install ")
