"""Who runs when: one prefill at a time, many decoding in step, a bounded number in all. Time is handed in.

The state between two events is constant, so nothing happens per token or per tick: `due` says when the next event is
and `advance` plays all events up to a moment, in order. Playing them in one call or in many gives the same result, so
an owner that wakes late loses no accuracy, only promptness.

    waiting --room--> prefill --first token--> decoding --last token--> (gone)

Law: while anything waits, something runs.
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from backends.mock.timing import CostModel

S = TypeVar("S", bound=Hashable)

Admit = Callable[[S, bool], int | None]
"""Takes what a sequence needs and says how many tokens must be computed; None while there is no room for it. The flag
is true when nothing else runs: then no room will come by waiting, and None is not allowed."""


@dataclass(frozen=True, slots=True)
class Step(Generic[S]):
    """Something that happened to a sequence: its prefill ended, it made a token or none, it is over."""

    sequence: S
    prefilled: bool
    tokens: int
    over: bool


class Schedule(Generic[S]):
    """`hear` is told every step as it is played, before the room that it frees is given to the next sequence."""

    def __init__(self, cost: CostModel, max_running: int, admit: Admit[S], hear: Callable[[Step[S]], None]) -> None:
        self._cost = cost
        self._max_running = max_running
        self._admit_one = admit
        self._hear = hear
        self._waiting: deque[tuple[S, int]] = deque()
        self._prefilling: tuple[S, int] | None = None
        self._prefill_ends = 0.0
        self._decoding: dict[S, int] = {}  # the tokens each still has to make
        self._now = 0.0
        self._phase = 0.0  # how much of the current step was done at `_now`

    def __repr__(self) -> str:
        return f"<Schedule {self.waiting} waiting, {self.running} running>"

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._decoding) + (self._prefilling is not None)

    def submit(self, sequence: S, length: int, now: float) -> None:
        """Joins the queue; `length` tokens will be made, 0 is a prefill and no more. Call `advance(now)` before."""
        self._move_to(max(now, self._now))
        self._waiting.append((sequence, length))
        self._admit()

    def cancel(self, sequence: S, now: float) -> None:
        """Leaves at once, from whichever place; unknown ones are none of our business. Call `advance(now)` before."""
        self._move_to(max(now, self._now))
        self._decoding.pop(sequence, None)
        if self._prefilling is not None and self._prefilling[0] == sequence:
            self._prefilling = None
        elif any(waiting == sequence for waiting, _ in self._waiting):
            self._waiting = deque(entry for entry in self._waiting if entry[0] != sequence)
        self._admit()

    def due(self) -> float | None:
        """When the next event is; None when nothing runs."""
        times = [self._prefill_ends] if self._prefilling is not None else []
        if self._decoding:
            step = self._cost.step_seconds(len(self._decoding))
            times.append(self._now + (1 - self._phase) * step)
        return min(times, default=None)

    def advance(self, now: float) -> None:
        """Plays every event up to `now`."""
        while (due := self.due()) is not None and due <= now:
            if self._prefilling is not None and self._prefill_ends <= due:
                self._end_prefill(*self._prefilling, due)
            else:
                self._end_step(due)
            self._admit()
        self._move_to(max(now, self._now))

    def _end_prefill(self, sequence: S, length: int, now: float) -> None:
        self._move_to(max(now, self._now))
        self._prefilling = None
        if length > 1:
            self._decoding[sequence] = length - 1
        self._hear(Step(sequence, prefilled=True, tokens=min(length, 1), over=length <= 1))

    def _end_step(self, now: float) -> None:
        self._now, self._phase = now, 0.0
        for sequence, left in list(self._decoding.items()):
            if left > 1:
                self._decoding[sequence] = left - 1
            else:
                del self._decoding[sequence]
            self._hear(Step(sequence, prefilled=False, tokens=1, over=left <= 1))

    def _move_to(self, now: float) -> None:
        """Lets time pass in which nothing ends, keeping how far the step got. The first to decode starts a fresh
        step."""
        if not self._decoding:
            self._phase = 0.0
        elif step := self._cost.step_seconds(len(self._decoding)):
            self._phase = min(1.0, self._phase + (now - self._now) / step)
        self._now = now

    def _admit(self) -> None:
        """Starts the next prefill where the unit is free and there is room."""
        if self._prefilling is not None or not self._waiting or self.running >= self._max_running:
            return
        uncached = self._admit_one(self._waiting[0][0], not self.running)
        if uncached is None:
            return
        self._prefilling = self._waiting.popleft()
        self._prefill_ends = self._now + self._cost.prefill_seconds(uncached)
