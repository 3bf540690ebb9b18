"""Workers from Kubernetes: the ready endpoints of a Service, followed as the API tells them.

List, then watch from there; list anew when that state is gone. Whatever fails, the workers that are known stay, and the
API is asked again after a pause that grows and is never the same for two gateways.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from random import Random

from router.clock import monotonic
from router.discovery.kubernetes_api import Api, Pace, reached
from router.discovery.slice_workers import SERVICE, SliceWorkers
from router.discovery.slices import Slices, Trouble
from router.sections.discovery import Kubernetes
from router.types import Worker

log = logging.getLogger("router")

WHERE = "discovery.kubernetes"
MOST_REMARKS, MOST_NAMES = 100, 10  # remembered so that each is logged once; named in one line of the log

Options = Kubernetes
Reach = Callable[[], AbstractAsyncContextManager[Api]]


def build(options: Kubernetes) -> KubernetesSource:
    pace = Pace()
    return KubernetesSource(options, lambda: reached(options, pace), pace, Random())  # noqa: S311 - pauses are no secret


class KubernetesSource:
    """`reach` opens a connection with the credentials as they are then."""

    def __init__(self, options: Kubernetes, reach: Reach, pace: Pace, dice: Random) -> None:
        self._selector = options.selector or f"{SERVICE}={options.service}"
        self._reach, self._pace, self._dice = reach, pace, dice
        self._slices, self._made = Slices(), SliceWorkers(options)
        self._workers: tuple[Worker, ...] | None = None  # None: the API was never reached
        self._told: set[str] = set()  # troubles since it was well last
        self._remarked: set[str] = set()

    async def watch(self) -> AsyncGenerator[tuple[Worker, ...], None]:
        """Complete sets, each different from the one before; the first once the API was reached."""
        failures = 0
        while True:
            began, wait = monotonic(), 0.0
            try:
                async with self._reach() as api:
                    if self._slices.version is None:
                        self._slices.replace(await api.listed(self._selector))
                        if self._renewed(api.namespace):
                            yield self._workers or ()
                    watch = await api.watch(self._selector, self._slices.version or "")
                    self._well()
                    async for lines in watch.lines():
                        changed = [self._slices.apply(line) for line in lines]
                        failures = 0
                        if any(changed) and self._renewed(api.namespace):
                            yield self._workers or ()
            except Trouble as wrong:
                wait = wrong.wait
                self._tell(wrong)
            if monotonic() - began > self._pace.steady:
                failures = 0
            await asyncio.sleep(max(wait, self._pause(failures)))
            failures += 1

    def _renewed(self, namespace: str) -> bool:
        """Make the workers anew; whether they differ from those before. What changes is logged."""
        before, found = self._workers, self._made.found(self._slices.all())
        for remark in found.remarks:
            self._remark(logging.WARNING, remark)
        self._workers = found.workers
        if found.workers == before:
            return False
        place = f"EndpointSlices {self._selector} in namespace {namespace}"
        if not found.workers:
            log.warning("%s: no workers: %s have no ready endpoints", WHERE, place)
        else:
            log.info("%s: %s in %s%s", WHERE, _counted(found.workers), place, _difference(before or (), found.workers))
        return True

    def _tell(self, wrong: Trouble) -> None:
        """Each trouble once, until all is well again; that all must be listed anew only once."""
        words = str(wrong)
        if wrong.gone:
            self._slices.version = None
            self._remark(logging.INFO, f"the API: {words}; all is listed anew")
        elif words not in self._told:
            self._told.add(words)
            kept = "nothing is known yet" if self._workers is None else f"{_counted(self._workers)} known before stay"
            log.warning("%s: the API: %s; %s", WHERE, words, kept)

    def _remark(self, level: int, words: str) -> None:
        """Once, however often it comes."""
        if words not in self._remarked and len(self._remarked) < MOST_REMARKS:
            self._remarked.add(words)
            log.log(level, "%s: %s", WHERE, words)

    def _well(self) -> None:
        if self._told:
            self._told.clear()
            log.info("%s: the API answers again", WHERE)

    def _pause(self, failures: int) -> float:
        """Seconds; between half of it and all."""
        longest = min(self._pace.most, self._pace.first * 2.0 ** min(failures, 30))
        return longest * self._dice.uniform(0.5, 1.0)


def _counted(workers: tuple[Worker, ...]) -> str:
    return "1 worker" if len(workers) == 1 else f"{len(workers)} workers"


def _difference(before: tuple[Worker, ...], after: tuple[Worker, ...]) -> str:
    """Who came and who went, by name."""
    old, new = {worker.id for worker in before}, {worker.id for worker in after}
    said = [f"{word} {_some(sorted(names))}" for word, names in (("came:", new - old), ("went:", old - new)) if names]
    return "".join(f"; {each}" for each in said)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
