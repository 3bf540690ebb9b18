"""The wiring: settings in, a built house out. The only place that knows the concrete classes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from fastapi import FastAPI

from router.admin import Desk, build_admin
from router.app import build_app
from router.clock import monotonic
from router.contracts import Policy, PolicyTools
from router.core.fleet import Changes, Fleet, Seat
from router.core.health import Signal, Thresholds
from router.core.holders import Holders
from router.core.mind import Mind
from router.core.slo import Slo
from router.discovery.roster import Roster
from router.discovery.sources import Sources
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
from router.plugins import build_dialects, build_policy, build_source
from router.processes.crew import Crew
from router.proxy.asgi import AsgiEndpoint
from router.proxy.protocol import FastLane, lane_for
from router.proxy.sweep import ClientLimits
from router.reload import kept, origins_kept, sorted_out
from router.settings import Settings
from router.signals.models import ModelCatalogue
from router.signals.prober import Prober
from router.signals.sharing import Sharing
from router.types import Worker

log = logging.getLogger("router")


class Gateway:
    """A built house with its app and its background tasks. `app` is ASGI; `lane` is uvicorn's `http=` class."""

    def __init__(self, settings: Settings, origins: dict[str, str] | None = None, dice: Random | None = None) -> None:
        self.settings, self._dice = settings, dice or Random()  # noqa: S311 - choosing workers is no secret
        self.bus = Bus()
        routing = settings.routing
        self.fleet = Fleet(_thresholds(settings), routing.slow_start_seconds)
        slo = _slo(settings)
        policy, shadow = self._policies(settings, slo)
        dialects = build_dialects()
        openai = next(dialect for dialect in dialects if dialect.name == "openai")
        alone = routing.replicas == 1 or settings.share is not None
        mind = Mind(self.fleet, policy, holders=Holders(routing.table_hashes), alone=alone)
        self.house = House(settings, mind, dialects, self.bus.emit, monotonic, slo)
        self.house.shadow = shadow
        self.house.tell_with(Journey)
        self.house.pass_through(settings.routing.pass_through, openai)
        self.catalogue = ModelCatalogue(self.fleet)
        paths = [path.decode() for path in self.house.paths] + ["/v1/models", "/ping"]
        self.outside = Outside(self.house, settings, self._dice)
        waiting = lambda: len(self.house.room)  # noqa: E731 - the house is read when somebody scrapes
        self.metrics = Metrics(self.bus, self.fleet, paths, waiting, routing.policy, self.outside.heard)
        decisions = Decisions(self.bus, monotonic)
        self.roster = Roster()
        self.static = StaticSource(worker.worker() for worker in settings.workers)
        self.sources = Sources(self._report, build_source)
        self.crew = Crew(self.house, self.roster, self.apply, self.metrics, decisions)
        self.app = build_app(self.house, self.crew.scrape, self.catalogue, openai, self._lifespan)
        self.desk = Desk(self.house, self.crew, settings, origins or {})
        self.app.include_router(build_admin(self.desk))
        self.lane = self._lane()
        self.family = ""  # what the processes of one gateway have in common, where there are several
        self.before_serving: Callable[[], Awaitable[None]] | None = None  # awaited before it listens, with all at work
        self._probers: dict[Seat, Prober] = {}
        self._serving = False
        self.bus.on(WorkerChanged, _log_change)
        self.bus.on(Panicked, _log_panic)

    def adopt(self, settings: Settings, origins: dict[str, str]) -> None:
        """Go by these settings from now on, but for what only a new process can take. What is in flight, waits, or was
        learnt stays; so do an admin's workers and drains."""
        _, restart = sorted_out(self.settings, settings)
        settings = kept(settings, self.settings, restart)
        origins = origins_kept(origins, self.desk.origins, restart)
        before, slo, mind = self.settings, _slo(settings), self.house.mind
        if _deciding(settings) != _deciding(before):
            policy, shadow = self._policies(settings, slo)  # it may raise: nothing is changed yet
            self.metrics.snapshot()  # what was counted was the old policy's
            mind.policy, self.house.shadow, self.house.slo = policy, shadow, slo
        mind.holders.limit = settings.routing.table_hashes
        self.settings = self.desk.settings = settings
        self.desk.origins = origins
        self.metrics.policy = settings.routing.policy
        self.fleet.slow_start_seconds = settings.routing.slow_start_seconds
        self.fleet.limits = _thresholds(settings)
        for seat in self.fleet.seats.values():
            seat.health.limits = self.fleet.limits
        self.house.adopt(settings)
        self.lane.terms.limits = _client_limits(settings)
        for route in self.app.router.routes:
            endpoint = getattr(route, "endpoint", None)
            if isinstance(endpoint, AsgiEndpoint):
                endpoint.limits = self.lane.terms.limits
        if settings.log.level != before.log.level:
            logging.getLogger().setLevel(settings.log.level.upper())
        self.outside.adopt(settings)
        self.static.replace(worker.worker() for worker in settings.workers)
        if self._serving:
            self._report(self.static, self.static.workers)
            self.sources.adopt(settings.discovery)
            renewed = self.house.tls.renewed
            if renewed or settings.connections.tls != before.connections.tls:
                for seat in self.fleet.seats.values():
                    self.house.let_go(seat)
                self.outside.follow(Changes((), (), tuple(self.fleet.seats.values())))
            if renewed or settings.health != before.health or settings.connections != before.connections:
                self._probe_anew()

    def _policies(self, settings: Settings, slo: Slo) -> tuple[Policy, Policy | None]:
        """The policy and its shadow, which moves no dice of the policy's."""
        routing = settings.routing
        tools = PolicyTools(self.fleet.ring, self._dice, slo)
        policy = build_policy(routing.policy, routing.options, tools)
        if routing.shadow is None:
            return policy, None
        own = tools._replace(random=Random(self._dice.random()))  # noqa: S311
        return policy, build_policy(routing.shadow, {}, own)

    def _probe_anew(self) -> None:
        for seat, prober in list(self._probers.items()):
            prober.stop()
            self._probers[seat] = self._prober(seat)

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
        self.outside.follow(Changes(tuple(self.fleet.seats.values()), (), ()))  # those an admin added before
        self._serving = True
        self.sources.open(self.static, self.settings.discovery)
        try:
            if self.before_serving is not None:
                await self.before_serving()
            yield
        finally:
            self._serving = False
            await self.sources.close()
            for prober in self._probers.values():
                prober.stop()
            await self.outside.close()
            self.house.close()
            access_log.close()

    def _report(self, source: object, workers: tuple[Worker, ...]) -> None:
        self.roster.report(source, workers)
        self.apply()

    def _prober(self, seat: Seat) -> Prober:
        health = self.settings.health
        return Prober(
            seat, self._tell, self._learn, interval=health.interval_seconds, timeout=health.timeout_seconds,
            path=health.path, tls=self.house.tls.context(seat.worker),
            clock=monotonic, name=self.house.resolver.name(seat.worker.address.host),
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
        return lane_for(self.house, _client_limits(self.settings), self.house.sweep, self._refused)

    def _refused(self, refusal: Refusal, request_id: str, peer: str) -> None:
        """The fast lane refused what never became a request."""
        self.bus.emit(Finished(request_id, "other", "", refusal.status, refusal.code, client=peer))


def _deciding(settings: Settings) -> tuple[Any, ...]:
    routing = settings.routing
    return routing.policy, routing.options, routing.shadow, routing.slo


def _slo(settings: Settings) -> Slo:
    slo = settings.routing.slo
    return Slo(slo.first_token_ms / 1000, slo.per_uncached_token_ms / 1000)


def _thresholds(settings: Settings) -> Thresholds:
    health, outliers = settings.health, settings.health.outliers
    return Thresholds(
        health.unhealthy_after, health.healthy_after, eject_seconds=outliers.eject_seconds,
        eject_most=outliers.eject_most_seconds, well_seconds=outliers.window_seconds,
    )  # fmt: skip


def _client_limits(settings: Settings) -> ClientLimits:
    timeouts = settings.timeouts
    return ClientLimits(timeouts.client_read_seconds, timeouts.client_write_seconds, settings.limits.header_bytes)


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
