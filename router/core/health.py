"""A worker's health: one table of (state, signal) -> state, with the few numbers beside it.

Active probes and passive failures feed the same table. Client errors (4xx) are no signal at all; a worker's 503 or
429 is back-pressure, not a fault: it only makes the worker less wanted for a moment (`pressed`).

A worker may also be ejected: it was silent for too long (`stalls.py`), or does badly while others do well
(`outliers.py`). It stays out longer each time, and that shrinks while it is well, as in Envoy's outlier detection.

    starting  never well yet                       no requests, not even in a panic
    ready     well                                 requests
    suspect   something failed, not yet enough     requests
    down      too much failed                      no requests
    trial     well again after that                one request at a time, until one succeeds
    draining  told to go                           no new requests
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from router.types import WorkerState as State

STARTING, READY, SUSPECT, DOWN, TRIAL, DRAINING = State


class Signal(StrEnum):
    PROBE_OK = "probe_ok"
    PROBE_FAILED = "probe_failed"
    REQUEST_OK = "request_ok"
    REQUEST_FAILED = "request_failed"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    STALLED = "stalled"
    EJECTED = "ejected"


PROBE_OK, PROBE_FAILED, REQUEST_OK, REQUEST_FAILED, DRAIN, UNDRAIN, STALLED, EJECTED = Signal
RENEW: Final = 0.4  # of a hold's time before its end, in which a worker that is still silent is held anew


class Thresholds(msgspec.Struct, frozen=True):
    """unhealthy_after, healthy_after: failures or good probes in a row
    hold_seconds, hold_most: how long failed requests keep a worker down; doubles each time, up to the most
    press_seconds, press_most: the same for back-pressure
    eject_seconds, eject_most: how long an ejection lasts: as many times the first as it was ejected, up to the most
    well_seconds: being well for so long takes one ejection off that count
    """

    unhealthy_after: int = 3
    healthy_after: int = 2
    hold_seconds: float = 2.0
    hold_most: float = 60.0
    press_seconds: float = 0.5
    press_most: float = 10.0
    eject_seconds: float = 5.0
    eject_most: float = 300.0
    well_seconds: float = 30.0


# (state, signal): (condition, state if it holds, state if not). A pair that is absent changes nothing.
TABLE: dict[tuple[State, Signal], tuple[str, State, State]] = {
    (STARTING, PROBE_OK): ("always", READY, READY),
    (READY, PROBE_FAILED): ("enough failures", DOWN, SUSPECT),
    (READY, REQUEST_FAILED): ("enough failures", DOWN, SUSPECT),
    (SUSPECT, PROBE_FAILED): ("enough failures", DOWN, SUSPECT),
    (SUSPECT, REQUEST_FAILED): ("enough failures", DOWN, SUSPECT),
    (SUSPECT, PROBE_OK): ("no failed requests", READY, SUSPECT),
    (SUSPECT, REQUEST_OK): ("no failed probes", READY, SUSPECT),
    (DOWN, PROBE_OK): ("well for long enough", TRIAL, DOWN),
    (TRIAL, REQUEST_OK): ("always", READY, READY),
    (TRIAL, REQUEST_FAILED): ("always", DOWN, DOWN),
    (TRIAL, PROBE_FAILED): ("enough failed probes", DOWN, TRIAL),
    (TRIAL, PROBE_OK): ("nothing to prove", READY, TRIAL),
    **{(state, out): ("always", DOWN, DOWN) for state in (READY, SUSPECT, TRIAL) for out in (STALLED, EJECTED)},
    **{(state, DRAIN): ("always", DRAINING, DRAINING) for state in State},
    (DRAINING, UNDRAIN): ("still well", READY, DOWN),
}


class Health:
    """One worker's place in the table. `was_ready` stays true once it has been well; until `pressed_until` others come
    first, since it said 503 or 429 a moment ago."""

    __slots__ = ("_eager", "_held_for", "_held_until", "_hold", "_press", "_well_since", "ejections", "failed_probes",
                 "failed_requests", "good_probes", "limits", "pressed_until", "proven", "state",
                 "was_ready")  # fmt: skip

    def __init__(self, limits: Thresholds) -> None:
        self.limits = limits
        self.state = STARTING
        self.was_ready = False
        self.failed_probes = self.failed_requests = self.good_probes = 0
        self._hold = limits.hold_seconds
        self._held_until = self._held_for = 0.0
        self.ejections = 0  # how often it was, less what being well since has made up for
        self.proven = True  # not ejected, or a request has succeeded since
        self._well_since: float | None = None
        self._press = limits.press_seconds
        self._eager = False  # back-pressure has made `_press` longer
        self.pressed_until = 0.0

    def __repr__(self) -> str:
        return f"<Health {self.state}, {self.failed_probes} probes and {self.failed_requests} requests failed>"

    def feed(self, signal: Signal, now: float) -> tuple[State, State]:
        """Count the signal, move, and say (before, after)."""
        before = self.state
        self._count(signal, now)
        row = TABLE.get((before, signal))
        if row is not None:
            condition, then, otherwise = row
            self.state = then if self._holds(condition, now) else otherwise
        if self.state is not before:
            self._entered(before, signal, now)
        if signal in (STALLED, EJECTED) and self.state is DOWN:
            self._eject(now, again=before is DOWN)
        return before, self.state

    def calm(self) -> bool:
        """Well, and nothing to forget: one more good answer would change nothing."""
        return self.state is READY and not (self.failed_requests or self.failed_probes or self._eager)

    def press(self, now: float, retry_after: float | None) -> None:
        """The worker asked for less. The pause doubles while it goes on, and honours a longer Retry-After."""
        pause = min(max(self._press, retry_after or 0.0), self.limits.press_most)
        self.pressed_until = max(self.pressed_until, now + pause)
        self._eager = True
        self._press = min(self._press * 2, self.limits.press_most)

    def _count(self, signal: Signal, now: float) -> None:
        if signal is PROBE_OK:
            self.failed_probes = 0
            self.good_probes += 1
        elif signal is PROBE_FAILED:
            self.failed_probes += 1
            self.good_probes = 0
        elif signal is REQUEST_FAILED:
            self.failed_requests += 1
        elif signal is REQUEST_OK:
            self.failed_requests = 0  # the probes' word stands: readiness is theirs to say
            if now >= self.pressed_until:  # an answer begun before the pause does not end it
                self._press = self.limits.press_seconds
                self._eager = False

    def _holds(self, condition: str, now: float) -> bool:
        if condition == "enough failures":
            return max(self.failed_probes, self.failed_requests) >= self.limits.unhealthy_after
        if condition == "no failed requests":
            return self.failed_requests == 0
        if condition == "well for long enough":
            return self.good_probes >= self.limits.healthy_after and now >= self._held_until
        if condition == "nothing to prove":
            return self.failed_requests == 0 and self.proven
        if condition == "no failed probes":
            return self.failed_probes == 0
        if condition == "enough failed probes":
            return self.failed_probes >= self.limits.unhealthy_after
        if condition == "still well":
            failures = max(self.failed_probes, self.failed_requests)
            return self.was_ready and failures < self.limits.unhealthy_after and now >= self._held_until
        return True

    def _entered(self, before: State, signal: Signal, now: float) -> None:
        if self.state is READY:
            self.was_ready = True
            self.failed_probes = self.failed_requests = 0
            self._hold = self.limits.hold_seconds
            self.proven = True
            self._well_since = now
        elif self.state is DOWN and not self.was_ready:
            self.state = STARTING
        elif self.state is DOWN:
            self.good_probes = 0
            if signal is REQUEST_FAILED:
                self._held_until = now + self._hold
                self._hold = min(self._hold * 2, self.limits.hold_most)
        elif self.state is TRIAL and self.failed_requests == 0 and self.proven:
            self.state = READY
            self._entered(before, signal, now)

    def _eject(self, now: float, *, again: bool) -> None:
        """Held for longer each time; `again`: it was down, and is held anew once its time is nearly over."""
        if again and self._held_until - now > RENEW * self._held_for:
            return
        limits = self.limits
        if self._well_since is not None:
            self.ejections = max(0, self.ejections - int((now - self._well_since) / limits.well_seconds))
            self._well_since = None
        self.ejections += 1
        self.proven = False
        self._held_for = min(limits.eject_seconds * self.ejections, limits.eject_most)
        self._held_until = max(self._held_until, now + self._held_for)
