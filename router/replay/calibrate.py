"""How much faster than it was recorded a trace must be played: for a load, or for the most that a policy carries."""

from __future__ import annotations

from collections.abc import Callable

CLOSE = 0.003  # of the workers' time
TRIES = 12
STEPS, TOP = 6, 8.0  # a bisection down to an eighth of the trace's own rate
GOOD = 0.95  # of the requests inside the target


def scale_for(busy: float, measure: Callable[[float], float], guess: float = 1.0) -> tuple[float, float]:
    """The scale at which `measure` (scale -> share of the time that prefill engines are busy) is nearest to `busy`, and
    what it is there. A trace of few sessions may never get there."""
    scale, low, high = guess, None, None
    best = (guess, -1.0)
    for _ in range(TRIES):
        seen = measure(scale)
        if abs(seen - busy) < abs(best[1] - busy):
            best = scale, seen
        if abs(seen - busy) <= CLOSE:
            break
        if seen < busy:
            low = scale
        else:
            high = scale
        step = scale * busy / max(seen, 1e-3)
        if low is not None and high is not None and not low < step < high:
            step = (low + high) / 2
        scale = step
    return best


def capacity(inside: Callable[[float], float], good: float = GOOD, top: float = TOP, steps: int = STEPS) -> float:
    """The highest scale tried at which `inside` (scale -> share inside the target) is good enough; 0 if none was."""
    low, high = 0.0, top
    for _ in range(steps):
        middle = (low + high) / 2
        if inside(middle) >= good:
            low = middle
        else:
            high = middle
    return low
