"""Time counts only while something is measured."""

import pytest

from backends.bench_decoding.meter import Clocks, Meter


class Time:
    def __init__(self) -> None:
        self.moment = 0.0

    def now(self) -> float:
        return self.moment


def test_only_what_happens_inside_is_counted_also_when_it_fails() -> None:
    wall, cpu = Time(), Time()
    meter = Meter(Clocks(wall.now, cpu.now))
    for inside, outside in ((1.0, 10.0), (2.0, 20.0)):
        with meter:
            wall.moment += inside
            cpu.moment += inside / 2
        wall.moment += outside
        cpu.moment += outside

    def fail() -> None:
        wall.moment += 4.0
        raise KeyError

    with pytest.raises(KeyError), meter:
        fail()
    assert (meter.wall, meter.cpu) == (7.0, 1.5)


def test_a_clock_is_read_only_after_the_device_is_done() -> None:
    heard: list[str] = []
    clocks = Clocks(lambda: float(len(heard.append("read") or heard)), None, lambda: heard.append("settled"))
    with Meter(clocks) as meter:
        heard.append("work")
    clocks.best()
    assert heard == ["settled", "read", "work", "settled", "read", "settled", "read"]
    assert meter.cpu is None


def test_cpu_seconds_are_the_better_ones_where_there_are_any() -> None:
    assert Clocks(lambda: 1.0, lambda: 2.0).best() == 2.0
    assert Clocks(lambda: 1.0).best() == 1.0
