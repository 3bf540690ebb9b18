"""The wiring: settings in, a built house out. The only place that knows the concrete classes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from fastapi import FastAPI

from router.admin import Desk, build_admin
from router.app import build_app
from router.clock import monotonic
from router.contracts import PolicyTools, Source
from router.core.fleet import Fleet, Seat
from router.core.health import Signal, Thresholds
from router.core.holders import Holders
from router.core.mind import Mind
from router.core.slo import Slo
from router.discovery.roster import Roster
from router.discovery.static import StaticSource
from router.errors import Refusal
from router.events import Finished, Panicked, WorkerChanged
from router.house import House
from router.journey import Journey
from router.observe.access_log import AccessLog
from router.observe.bus import Bus
from router.observe.decisions import Decisions
from router.observe.metrics import Metrics
from router.outside import Outside
from router.plugins import build_dialects, build_policy
from router.processes.crew import Crew
from router.proxy.protocol import FastLane, lane_for
from router.proxy.sweep import ClientLimits
from router.settings import Settings
from router.signals.models import ModelCatalogue
from router.signals.prober import Prober
from router.signals.sharing import Sharing

log = logging.getLogger("router")


class Gateway:
    """A built house with its app and its background tasks. `app` is ASGI; `lane` is uvicorn's `http=` class."""

    def __init__(self, settings: Settings, origins: dict[str, str] | None = None, dice: Random | None = None) -> None:
        self.settings = settings
        self.bus = Bus()
        routing = settings.routing
        thresholds = Thresholds(settings.health.unhealthy_after, settings.health.healthy_after)
        self.fleet = Fleet(thresholds, routing.slow_start_seconds)
        dice = dice or Random()  # noqa: S311 - choosing workers is no secret
        slo = Slo(routing.slo.first_token_ms / 1000, routing.slo.per_uncached_token_ms / 1000)
        tools = PolicyTools(self.fleet.ring, dice, slo)
        policy = build_policy(routing.policy, routing.options, tools)
        dialects = build_dialects()
        openai = next(dialect for dialect in dialects if dialect.name == "openai")
        alone = routing.replicas == 1 or settings.share is not None
        mind = Mind(self.fleet, policy, holders=Holders(routing.table_hashes), alone=alone)
        self.house = House(settings, mind, dialects, self.bus.emit, monotonic, slo)
        if routing.shadow is not None:
            own = tools._replace(random=Random(dice.random()))  # noqa: S311 - so that it moves no dice of the policy
            self.house.shadow = build_policy(routing.shadow, {}, own)
        self.house.tell_with(Journey)
        self.house.pass_through(settings.routing.pass_through, openai)
        self.catalogue = ModelCatalogue(self.fleet)
        paths = [path.decode() for path in self.house.paths] + ["/v1/models", "/ping"]
        self.outside = Outside(self.house, settings, dice)
        waiting = lambda: len(self.house.room)  # noqa: E731 - the house is read when somebody scrapes
        self.metrics = Metrics(self.bus, self.fleet, paths, waiting, routing.policy, self.outside.heard)
        decisions = Decisions(self.bus, monotonic)
        self.roster = Roster()
        self.static = StaticSource(worker.worker() for worker in settings.workers)
        self.crew = Crew(self.house, self.roster, self.apply, self.metrics, decisions)
        self.app = build_app(self.house, self.crew.scrape, self.catalogue, openai, self._lifespan)
        desk = Desk(self.house, self.crew, settings, origins or {})
        self.app.include_router(build_admin(desk))
        self.lane = self._lane()
        self.family = ""  # what the processes of one gateway have in common, where there are several
        self.before_serving: Callable[[], Awaitable[None]] | None = None  # awaited before it listens, with all at work
        self._probers: dict[Seat, Prober] = {}
        self.bus.on(WorkerChanged, _log_change)
        self.bus.on(Panicked, _log_panic)

    def apply(self) -> None:
        """Make fleet, probes and connections equal to the roster."""
        changes = self.house.reconcile(self.roster.workers())
        for seat in changes.left:
            self._stop_probing(seat)
            self.catalogue.forget(seat.id)
        for seat in changes.updated:
            self._stop_probing(seat)
        for seat in changes.joined + changes.updated:
            self._probers[seat] = self._prober(seat)
        self.outside.follow(changes)
        self.crew.settle(self.fleet.seats)

    def share(self) -> Sharing:
        """What goes out to other processes and replicas; without it nothing does."""
        return self.outside.share()

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        access_log = AccessLog(self.bus, self.settings.log.access, shared=self.settings.listen.processes != 1)
        self.outside.open(self.family)
        watching = asyncio.create_task(self._watch(self.static), name="static workers")
        try:
            if self.before_serving is not None:
                await self.before_serving()
            yield
        finally:
            watching.cancel()
            for prober in self._probers.values():
                prober.stop()
            await self.outside.close()
            self.house.close()
            access_log.close()

    async def _watch(self, source: Source) -> None:
        async for workers in source.watch():
            self.roster.report(source, workers)
            self.apply()

    def _prober(self, seat: Seat) -> Prober:
        health = self.settings.health
        return Prober(
            seat, self._tell, self._learn, interval=health.interval_seconds, timeout=health.timeout_seconds,
            path=health.path, tls=self.house.tls,
            clock=monotonic,
        )  # fmt: skip

    def _stop_probing(self, seat: Seat) -> None:
        prober = self._probers.pop(seat, None)
        if prober is not None:
            prober.stop()

    def _tell(self, seat: Seat, signal: Signal, cause: str) -> None:
        self.house.signal(seat, signal, cause)

    def _learn(self, seat: Seat, entries: list[dict[str, Any]]) -> None:
        self.catalogue.learn(seat, entries)

    def _lane(self) -> type[FastLane]:
        settings = self.settings
        limits = ClientLimits(
            settings.timeouts.client_read_seconds, settings.timeouts.client_write_seconds, settings.limits.header_bytes
        )
        return lane_for(self.house, limits, self.house.sweep, self._refused)

    def _refused(self, refusal: Refusal, request_id: str) -> None:
        """The fast lane refused what never became a request."""
        self.bus.emit(Finished(request_id=request_id, path="other", model="", status=refusal.status, code=refusal.code))


def _log_change(event: WorkerChanged) -> None:
    log.log(
        logging.WARNING if event.after.value in ("down", "suspect") else logging.INFO,
        "worker %s: %s -> %s (%s)", event.worker, event.before.value, event.after.value, event.cause,
    )  # fmt: skip


def _log_panic(event: Panicked) -> None:
    if event.began:
        log.error("panic: nearly all workers look bad; those that were well before are still tried")
    else:
        log.warning("panic is over")
