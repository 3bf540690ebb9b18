"""A gateway in the test's own loop, on a free port, and a stage that holds it, its workers and its clients.

The stage asserts at its end what must hold after every story: nothing in flight, nothing charged, no connection busy,
nobody waiting, no generation left running, no task left over, and the next plain request succeeds.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, get_args
from unittest.mock import patch

from router.core.fleet import Seat
from router.events import Event, Finished
from router.house import House
from router.layers import load
from router.proxy.certificates import Certificates
from router.proxy.exchange import Connection
from router.server import Server, bind, build_server
from router.types import worker_from_url
from router.wiring import Gateway
from tests.support.client import CHAT, PATIENCE, Client, Response, get, post
from tests.support.worker import Worker

QUICK: dict[str, Any] = {
    "log": {"access": "none"},
    "health": {"interval_seconds": 0.3, "timeout_seconds": 1.0},
}
TLS = ssl.create_default_context()  # reading the system's certificates takes longer than all else a gateway does
PLAIN = b'{"model": "plain", "messages": []}'


async def eventually(holds: Callable[[], Any], what: str | Callable[[], str] = "", within: float = PATIENCE) -> None:
    """Wait until something holds: for what another side of a socket must first notice."""
    end = asyncio.get_running_loop().time() + within
    while not holds():
        if asyncio.get_running_loop().time() > end:
            raise AssertionError((what() if callable(what) else what) or "it never came true")
        await asyncio.sleep(0.005)


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in more.items():
        below = out.get(key)
        out[key] = merged(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return out


class Running:
    """A gateway that runs; `events` are all it told."""

    def __init__(self, settings: Mapping[str, Any], *, fast: bool) -> None:
        made, origins = load([("test", merged(QUICK, settings))], {})
        with patch("router.house.ssl.create_default_context", return_value=TLS):
            self.gateway = Gateway(made, origins)
        self.house: House = self.gateway.house
        self.server: Server = build_server(self.gateway, fast=fast)
        self.events: list[Event] = []
        self.port = 0
        self.before = b""  # what a connection begins with
        for kind in get_args(Event):
            self.gateway.bus.on(kind, self.events.append)

    async def start(self) -> "Running":
        listener = bind("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        self._before = asyncio.all_tasks()
        config = self.server.config
        config.load()
        self.server.lifespan = config.lifespan_class(config)
        await self.server.startup([listener])
        return self

    async def stop(self) -> None:
        """At once: how the gateway ends gracefully is told elsewhere, of a process of its own."""
        if not self.server.started:
            return
        self.server.started = False
        for listening in self.server.servers:
            listening.close()
        for connection in list(self.server.server_state.connections):
            connection.transport.abort()
        await eventually(lambda: not self.server.server_state.tasks and not self.server.server_state.connections)
        await self.server.lifespan.shutdown()
        await eventually(lambda: not self.own_tasks() - {asyncio.current_task()}, "tasks outlive the gateway")

    @property
    def seats(self) -> dict[str, Seat]:
        return self.house.fleet.seats

    def seat(self, worker: Worker) -> Seat:
        return self.seats[worker.id]

    def state(self, worker: Worker) -> str:
        return self.seat(worker).health.state.value

    @property
    def finished(self) -> list[Finished]:
        return [event for event in self.events if isinstance(event, Finished)]

    def told(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def ready(self, count: int | None = None) -> None:
        """Wait until this many workers are ready, or all."""
        await eventually(lambda: len(self.house.fleet.ready()) == (len(self.seats) if count is None else count))

    def taken(self) -> list[str]:
        """What is held of leases, places in the room and connections; nothing, when no request is under way."""
        room, pools = self.house.room, self.house._pools.values()
        held = [f"{seat}, {seat.load}" for seat in self.seats.values() if not at_rest(seat)]
        held += [f"{room}"] if len(room) or room.hoping else []
        held += [f"{pool}" for pool in pools if pool.busy() or pool.waiting]
        return held + [f"{each.pool} of one that left" for each in self.connections() if each.pool._closed]

    def watched(self) -> list[str]:
        """What the sweep watches though it is over: nothing, when no client is connected."""
        standing = (Connection, Certificates, type(self.house.watch))
        return [f"{type(each).__name__} {each}" for each in self.house.sweep if not isinstance(each, standing)]

    def connections(self) -> list[Connection]:
        """To workers, open or about to be."""
        return [each for each in self.house.sweep if isinstance(each, Connection)]

    def own_tasks(self) -> set["asyncio.Task[Any]"]:
        """What the gateway has running now."""
        return {task for task in asyncio.all_tasks() - self._before if not task.get_name().startswith("worker ")}

    async def metrics(self) -> dict[str, float]:
        """Every sample of a scrape, by its name and labels as they stand there."""
        text = (await ask(self.port, self.before + get("/metrics"))).body.decode()
        lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}


def at_rest(seat: Seat) -> bool:
    """Nothing of a worker's attention is taken."""
    load = seat.load
    return (load.in_flight, load.waiting, load.charged) == (0, 0, 0.0)


async def ask(port: int, *request: bytes) -> Response:
    """One request on a connection of its own."""
    client = await Client.connect(port)
    try:
        return await client.ask(*request)
    finally:
        await client.close()


class Stage:
    def __init__(self, *, fast: bool) -> None:
        self.fast = fast
        self.workers: list[Worker] = []
        self.clients: list[Client] = []
        self.gateways: list[Running] = []
        self.headers: list[tuple[str, str]] = []  # what a plain request needs
        self._standing: set[str] = set()

    async def worker(self, **switches: Any) -> Worker:
        worker = await Worker(**switches).listen()
        self.workers.append(worker)
        return worker

    async def gateway(self, *workers: Worker | Mapping[str, Any] | str, ready: bool = True, **settings: Any) -> Running:
        """Start a gateway in front of these; `ready`: wait until they all are."""
        given = [worker.url if isinstance(worker, Worker) else worker for worker in workers]
        running = Running({"workers": given, **settings}, fast=self.fast)
        self.gateways.append(running)
        await running.start()
        await eventually(lambda: len(running.seats) == len(given))
        if ready:
            await running.ready()
        self._standing = {task.get_name() for task in running.own_tasks()}
        return running

    async def client(self, running: Running, **options: Any) -> Client:
        client = await Client.connect(running.port, **options)
        self.clients.append(client)
        return client

    async def check(self) -> None:
        for running in self.gateways:
            if running.server.started:
                await self.at_rest(running)
                await self.plain_request(running)
                await self.at_rest(running)
                await self.nothing_shown(running)
        for worker in self.workers:
            await eventually(lambda worker=worker: worker.running == 0, "a generation was left running")

    async def at_rest(self, running: Running) -> None:
        await eventually(lambda: not running.taken(), lambda: f"not at rest: {running.taken()}", within=3.0)
        for client in self.clients:
            await client.close()
        await eventually(lambda: not running.watched(), lambda: f"still watched: {running.watched()}", within=3.0)

        def left() -> list[str]:
            return [t.get_name() for t in running.own_tasks() if not t.get_name().startswith(("probe ", "worker "))]

        allowed = {name for name in self._standing if not name.startswith("probe ")}
        current = asyncio.current_task()
        own = {current.get_name()} if current else set()
        await eventually(lambda: set(left()) <= allowed | own, f"tasks were left: {set(left()) - allowed}", within=3.0)

    async def nothing_shown(self, running: Running) -> None:
        """The metrics say so too, and they speak of no worker that left."""
        metrics = await running.metrics()
        known = [f'worker="{name}"' for name in running.seats]
        for name, value in metrics.items():
            if name.startswith(("prefix_router_in_flight{", "prefix_router_outstanding_tokens{")):
                assert value == 0, name
            assert 'worker="' not in name or any(worker in name for worker in known), f"{name}: it left"
        assert metrics["prefix_router_queued"] == 0

    async def plain_request(self, running: Running) -> None:
        """A worker of its own with a model of its own: nothing of the story's faults is left in its way."""
        worker = await self.worker(models=("plain",))
        made = worker_from_url(worker.url, id="the-plain-one", models=("plain",))
        running.gateway.roster.add(made)
        running.gateway.apply()
        await eventually(lambda: running.seats["the-plain-one"].health.state.value == "ready")
        answer = await ask(running.port, running.before + post(PLAIN, CHAT, self.headers))
        assert (answer.status, answer.body) == (200, b'{"object": "answer"}'), "the next plain request fails"
        if all(seat.models is not None for seat in running.seats.values()):
            assert worker.started == 1

    async def close(self) -> None:
        """Each by itself, so that one that is stuck leaves no other behind."""
        wrong: list[Exception] = []
        for end in (*[each.close for each in (*self.clients, *self.workers)], *[each.stop for each in self.gateways]):
            try:
                await end()
            except Exception as failure:
                wrong.append(failure)
        if wrong:
            raise wrong[0]
