"""Time that is counted only while a step runs."""

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class Clocks:
    """`wall`: seconds. `cpu`: CPU seconds of this process, None where they would mean nothing: with a device that
    computes elsewhere, or with threads that spin while they wait. `settle`: waits for all that the device still has to
    do, before a clock is read."""

    wall: Callable[[], float]
    cpu: Callable[[], float] | None = None
    settle: Callable[[], None] = lambda: None

    def best(self) -> float:
        """The clock that other programs on the machine disturb least: CPU seconds where they mean something."""
        self.settle()
        return self.wall() if self.cpu is None else self.cpu()


class Meter:
    """Adds up the seconds spent inside `with`."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self.wall = 0.0
        self.cpu: float | None = None if clocks.cpu is None else 0.0

    def __enter__(self) -> Self:
        self._clocks.settle()
        self._began = self._read()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._clocks.settle()
        wall, cpu = self._read()
        self.wall += wall - self._began[0]
        if self.cpu is not None:
            self.cpu += cpu - self._began[1]

    def _read(self) -> tuple[float, float]:
        return self._clocks.wall(), 0.0 if self._clocks.cpu is None else self._clocks.cpu()
