"""The wiring: settings in, a built house out. The only place that knows the concrete classes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
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
from router.core.mind import Mind
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
from router.plugins import build_dialects, build_policy
from router.proxy.protocol import FastLane, lane_for
from router.proxy.sweep import ClientLimits
from router.settings import Settings
from router.signals.models import ModelCatalogue
from router.signals.prober import Prober

log = logging.getLogger("router")


class Gateway:
    """A built house with its app and its background tasks. `app` is ASGI; `lane` is uvicorn's `http=` class."""

    def __init__(self, settings: Settings, origins: dict[str, str] | None = None, dice: Random | None = None) -> None:
        self.settings = settings
        self.bus = Bus()
        self.fleet = Fleet(Thresholds(settings.health.unhealthy_after, settings.health.healthy_after))
        tools = PolicyTools(self.fleet.ring, dice or Random())  # noqa: S311 - choosing workers is no secret
        policy = build_policy(settings.routing.policy, settings.routing.options, tools)
        dialects = build_dialects()
        openai = next(dialect for dialect in dialects if dialect.name == "openai")
        self.house = House(settings, Mind(self.fleet, policy), dialects, self.bus.emit, monotonic)
        self.house.tell_with(Journey)
        self.house.pass_through(settings.routing.pass_through, openai)
        self.catalogue = ModelCatalogue(self.fleet)
        paths = [path.decode() for path in self.house.paths] + ["/v1/models", "/ping"]
        slo = settings.routing.slo.first_token_ms / 1000
        self.metrics = Metrics(self.bus, self.fleet, paths, lambda: len(self.house.room), settings.routing.policy, slo)
        decisions = Decisions(self.bus, monotonic)
        self.roster = Roster()
        self.static = StaticSource(worker.worker() for worker in settings.workers)
        self.app = build_app(self.house, self.metrics, self.catalogue, openai, self._lifespan)
        desk = Desk(self.house, self.roster, self.apply, decisions, settings, origins or {})
        self.app.include_router(build_admin(desk))
        self.lane = self._lane()
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

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        access_log = AccessLog(self.bus, self.settings.log.access)
        watching = asyncio.create_task(self._watch(self.static), name="static workers")
        try:
            yield
        finally:
            watching.cancel()
            for prober in self._probers.values():
                prober.stop()
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
