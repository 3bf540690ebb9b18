"""What a journey needs of the built house, on one page. The wiring builds it; nothing else does.

It owns no rule: it asks the mind, the fleet and the room, and tells the listeners.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable

from router.contracts import Dialect, Place, Policy, Sink, Story
from router.core.choose import Choice
from router.core.fleet import Changes, Fleet, Seat
from router.core.health import Signal
from router.core.keys import Key, Keys
from router.core.mind import Mind
from router.core.origin import Origins
from router.core.patience import Patience
from router.core.queue import WaitingRoom
from router.core.rates import Accounts, Rate
from router.core.slo import Slo
from router.errors import InvalidRequest, ModelNotFound, NoReadyWorker, Refusal
from router.events import Event, Panicked, WorkerLeft
from router.large import OneByOne
from router.prompt import Prompt
from router.proxy.cors import Cors
from router.proxy.headers import Headers
from router.proxy.resolve import Resolver
from router.proxy.sweep import Sweep
from router.proxy.upstream import Limits, Pool
from router.proxy.worker_tls import WorkerContexts
from router.sections.limits import Rates
from router.settings import Settings
from router.types import Worker, WorkerTls
from router.watching import RoomWatch, Watch


class House:
    def __init__(
        self,
        settings: Settings,
        mind: Mind,
        dialects: Iterable[Dialect],
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        slo: Slo | None = None,
    ) -> None:
        self.mind = mind
        self.fleet: Fleet = mind.fleet
        self.emit = emit
        self.clock = clock
        self.slo = slo or Slo()
        self.shadow: Policy | None = None  # scores every request, and decides none
        self.sweep = Sweep(clock)
        self.large = OneByOne()
        self.room = WaitingRoom(settings.queue.max, settings.queue.wait_seconds)
        self.patience = Patience()
        self.accounts = Accounts()
        self.paths = {path.encode(): Place(path, dialect) for dialect in dialects for path in dialect.paths}
        self.draining = False
        self.tls = WorkerContexts(ssl.create_default_context())
        self._routed: dict[tuple[str, str], Headers] = {}
        self._pools: dict[Seat, Pool] = {}
        self.watch = Watch(self)
        self.resolver = Resolver(clock, settings.connections.resolve_seconds, self.watch.moved)
        self._room_watch = RoomWatch(self.room, self.sweep)
        self.pumping = False
        self._tell: Callable[[House, Place, bytes, Headers, Sink], Story]
        self.adopt(settings)

    def adopt(self, settings: Settings) -> None:
        """Go by these settings from now on; all that is read of them while requests run is set here."""
        self.settings = settings
        self.keys = Keys(
            Key(key.tenant, key.digest(), key.priority, key.weight, _rate(key.rates) if key.rates is not None else None)
            for key in settings.auth.api_keys
        )
        self.checks_keys = bool(self.keys)
        self.salts_tenants = settings.auth.tenant_salt
        self.policy_name = settings.routing.policy
        self.shadow_name = settings.routing.shadow or ""
        self.max_tries = settings.routing.max_tries
        self.resumes = settings.routing.resume
        self.most_body_bytes, self.most_body_parts = settings.limits.body_bytes, settings.limits.body_parts
        self.most = settings.limits.in_flight
        self.fleet.limit_each(settings.limits.worker_in_flight)
        self.usual_rate = _rate(settings.limits.caller)
        self.counts_callers = bool(self.usual_rate) or any(key.rate for key in self.keys)
        self.open_priorities = settings.queue.open_priorities
        self.hears_priorities = self.open_priorities or any(key.priority for key in self.keys)
        self.total_seconds = settings.timeouts.total_seconds
        self.logs_hashes = settings.log.hashes
        self.tls.adopt(WorkerTls(**settings.connections.tls.model_dump()))
        self.most_header_bytes = settings.limits.header_bytes
        listen = settings.listen
        self.origins = Origins(listen.trusted_proxies) if listen.trusted_proxies else None
        self.cors = Cors(listen.cors_origins) if listen.cors_origins else None
        self.room.most, self.room.wait_seconds = settings.queue.max, settings.queue.wait_seconds
        self._routed = {}
        self._limits = Limits(
            settings.timeouts.connect_seconds, settings.timeouts.first_byte_seconds, settings.timeouts.idle_seconds,
            settings.connections.per_worker,
        )  # fmt: skip
        for seat, pool in self._pools.items():
            pool.go_by(self._limits)
            if pool.tls is not None:
                pool.tls = self.tls.context(seat.worker)
        self.resolver.seconds = settings.connections.resolve_seconds
        self.watch.go_by(settings.health)
        self.freed()

    def tell_with(self, tell: Callable[[House, Place, bytes, Headers, Sink], Story]) -> None:
        """How stories begin: `Journey`, which stands a step above this page."""
        self._tell = tell

    def open(self, place: Place, target: bytes, headers: Headers, sink: Sink) -> Story:
        return self._tell(self, place, target, headers, sink)

    def pass_through(self, paths: Iterable[str], dialect: Dialect) -> None:
        """Proxy these paths too, read as this dialect where it can be."""
        for path in paths:
            self.paths.setdefault(path.encode(), Place(path, dialect))

    def client_of(self, peer: str, headers: Headers) -> str:
        """Whose request this is: the peer's own, or whom a trusted proxy speaks for."""
        return peer if self.origins is None else self.origins.client_of(peer, headers)

    # What a journey asks.

    def model(self, prompt: Prompt) -> str | None:
        """The model asked for, None where one need not be named. Raises what the client must be told."""
        model = prompt.model
        if model and self.fleet.known_model(model):
            return model
        if not self.fleet.seats:
            hint = "No worker is configured; add one with --worker or POST /admin/workers."
            raise NoReadyWorker(hint, retry_after=5.0)
        if not model:
            return self._only_model(prompt)
        if not self.fleet.served(model):
            raise ModelNotFound("No worker serves this model; GET /v1/models lists those that are.", param="model")
        return model

    def _only_model(self, prompt: Prompt) -> str | None:
        names = self.fleet.models()
        if len(names) > 1:
            trouble = "`model` is missing" if prompt.model_is_text else "`model` is not text"
            raise InvalidRequest(f"{trouble}; several models are served here.", param="model")
        return names[0] if names else None

    def none_ready(self) -> Refusal:
        return NoReadyWorker("No ready worker serves this model now; try again shortly.", retry_after=1.0)

    def routed_headers(self, choice: Choice) -> Headers:
        """What an answer's head says of the choice."""
        facts = choice.seat.id, choice.reason
        found = self._routed.get(facts)
        if found is None:
            worker, reason = facts
            found = self._routed[facts] = [
                (b"x-router-worker", worker.encode()), (b"x-router-reason", reason.encode()),
                (b"x-router-policy", self.policy_name.encode()),
            ]  # fmt: skip
        return found

    def is_full(self) -> bool:
        """The limit on all requests in flight is reached."""
        return (
            self.most is not None
            and sum(s.load.in_flight + s.load.elsewhere for s in self.fleet.seats.values()) >= self.most
        )

    def pool(self, seat: Seat) -> Pool:
        pool = self._pools.get(seat)
        if pool is None:
            pool = self._pools[seat] = Pool(
                seat.worker, self.sweep, self._limits, self.tls.context(seat.worker), names=self.resolver,
                beat=self.watch,
            )  # fmt: skip
        return pool

    def pool_of(self, seat: Seat) -> Pool | None:
        """The one that is there already."""
        return self._pools.get(seat)

    # What a journey tells.

    def signal(self, seat: Seat, signal: Signal, cause: str = "") -> None:
        """A worker did well or badly."""
        panicked = self.fleet.panicking
        changed = self.fleet.feed(seat, signal, self.clock(), cause)
        if changed is not None:
            self.emit(changed)
            self.freed()
        if self.fleet.panicking is not panicked:
            self.emit(Panicked(self.fleet.panicking))

    def freed(self) -> None:
        """A worker has room again: those that wait may go, once this call is over."""
        if len(self.room) and not self.pumping:
            self.pumping = True
            asyncio.get_running_loop().call_soon(self.pump)

    def sweep_room(self) -> None:
        """Somebody waits: their time is watched."""
        self.sweep.watch(self._room_watch)

    def pump(self) -> None:
        """Let those that wait go, once for all that was freed."""
        if self.pumping:
            self.pumping = False
            self.room.pump()

    # What the wiring tells.

    def reconcile(self, workers: Iterable[Worker]) -> Changes:
        """Make the fleet equal to this set; streams on workers that left finish on their own connections."""
        changes = self.fleet.reconcile(workers)
        for seat in changes.left:
            self.mind.left(seat)
            self.patience.forget(seat.id)
            self.let_go(seat)
            self.emit(WorkerLeft(seat.id))
        if changes.left:
            self._routed = {}
        for seat in changes.updated:
            self.let_go(seat)
        self.resolver.keep(seat.worker.address.host for seat in self.fleet.seats.values())
        self.freed()
        return changes

    def let_go(self, seat: Seat) -> None:
        """Close its connections, busy ones when they are done; the next request opens new ones."""
        pool = self._pools.pop(seat, None)
        if pool is not None:
            pool.close()

    def busy_connections(self) -> int:
        return sum(pool.busy() for pool in self._pools.values())

    def close(self) -> None:
        self.resolver.close()
        for pool in self._pools.values():
            pool.close()


def _rate(rates: Rates) -> Rate:
    return Rate(rates.requests_per_minute, rates.prompt_tokens_per_minute)
