"""The only place that reads the time."""

import time
from datetime import UTC, datetime

import pytest

from router import clock
from router.clock import Stamp, monotonic


def test_the_clock_is_monotonic() -> None:
    assert monotonic is time.monotonic


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(1.0, b"1970-01-01T00:00:01.000Z"), (1_700_000_000.0625, b"2023-11-14T22:13:20.062Z"),
     (951_782_399.9995, b"2000-02-28T23:59:59.999Z")],
)  # fmt: skip
def test_a_stamp_is_iso_to_the_millisecond(monkeypatch: pytest.MonkeyPatch, seconds: float, shown: bytes) -> None:
    monkeypatch.setattr(clock, "time", lambda: seconds)
    assert Stamp()() == shown


def test_one_stamp_follows_the_time_forwards_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = Stamp()
    for seconds in (10.0, 10.0, 10.0005, 10.25, 11.0, 11.75, 3.5, 86_400.125):
        monkeypatch.setattr(clock, "time", lambda seconds=seconds: seconds)
        expected = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        assert stamp().decode() == expected


def test_within_a_millisecond_it_is_the_same_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "time", lambda: 5.0)
    stamp = Stamp()
    assert stamp() is stamp()
