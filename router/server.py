"""Running the gateway under uvicorn, and ending it as the contract says.

SIGTERM: not ready at once, still listening for `shutdown.grace_seconds` so that load balancers notice, then no new
connections, running requests finish within `shutdown.drain_seconds`, exit 0. A second signal ends at once. From the
first on every answer closes its connection, so that no client is caught sending when the idle ones are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from router.errors import NoReadyWorker
from router.observe.own_log import set_up_logging
from router.processes.listeners import BACKLOG, announce, bind, cannot_listen
from router.proxy.doors import open_doors
from router.proxy.fit import missing_attributes
from router.proxy.plain import Plain
from router.reload import Loaded, Reloader, SettingsSource
from router.settings import Settings
from router.wiring import Gateway

log = logging.getLogger("router")

LAST_SECONDS = 5  # for what was cut to end
LAST_WORD_SECONDS = 0.1  # for an answer to get out before its connection is cut
FIRST_SECONDS, LOOK_SECONDS = 1.0, 0.02  # for a connection that was just taken to ask for something
KEEP_ALIVE_SECONDS = 75  # longer than the usual 60 s of load balancers, so that they close first


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cutting = False
        self._own: list[asyncio.Task[None]] = []  # tasks that end with it
        self.reloader: Reloader | None = None  # of this process, where it is the only one

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup([])  # the doors are our own
        if self.started and sockets:
            kind: Any = self.config.http_protocol_class
            made = partial(kind, self.config, self.server_state, self.lifespan.state)
            listen = self._gateway.settings.listen
            there = self.server_state.connections
            self.servers = await open_doors(sockets, made, self.config.ssl, listen, self._gateway.house, there)
            self.listening(sockets[0])

    def listening(self, listener: socket.socket) -> None:
        announce(listener, tls=bool(self.config.ssl))
        if self.reloader is not None:
            self._own.append(asyncio.create_task(self.reloader.follow(), name="the settings' file"))

    def read_with(self, source: SettingsSource) -> None:
        """Reload from here at a signal, when the file changes, and when an admin asks."""
        gateway = self._gateway

        async def take(settings: Settings, origins: dict[str, str]) -> None:
            gateway.adopt(settings, origins)

        mark = partial(setattr, gateway.metrics, "reload_failed")
        self.reloader = gateway.crew.reloader = Reloader(source, (gateway.settings, gateway.desk.origins), take, mark)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, but a connection that was taken and has not asked yet is heard first."""
        self.close_listeners(sockets)
        self.last_answers()
        for _ in range(round(FIRST_SECONDS / LOOK_SECONDS)):
            if self._cutting or not any(_is_asking(each) for each in self.server_state.connections):
                break
            await asyncio.sleep(LOOK_SECONDS)
        self.config.timeout_graceful_shutdown = round(self._gateway.settings.shutdown.drain_seconds) + LAST_SECONDS
        await super().shutdown(sockets)
        for task in self._own:
            task.cancel()

    def close_listeners(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()

    def last_answers(self) -> None:
        """From now on every answer is its connection's last."""
        self._gateway.lane.terms.closing = True
        close = (b"connection", b"close")
        for headers in (self.config.encoded_headers, self.server_state.default_headers):
            if close not in headers:
                headers.append(close)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the signal is not raised again at the end: a clean stop is exit 0."""
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self.handle_hangup)
        before[signal.SIGUSR2] = signal.signal(signal.SIGUSR2, _no_renewal)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.ending:
            self.cut()
        else:
            self.end(self._gateway.settings.shutdown.grace_seconds if sig == signal.SIGTERM else 0.0)

    def handle_hangup(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is not None and self.reloader is not None:
            self._loop.call_soon_threadsafe(self.reloader.begin, "SIGHUP")

    @property
    def ending(self) -> bool:
        return self._gateway.house.draining

    def end(self, grace: float) -> None:
        """Gracefully: from now on not ready, in `grace` seconds no new connections, and then as streams finish."""
        self._gateway.house.draining = True
        if self._loop is None:
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self._loop.call_later, grace, self._stop)
            self._loop.call_soon_threadsafe(self.last_answers)

    def cut(self) -> None:
        """At once."""
        self.should_exit = self._cutting = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cut_all)

    def _stop(self) -> None:
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_later(self._gateway.settings.shutdown.drain_seconds, self._cut_all)

    def _cut_all(self) -> None:
        """End what still runs, each with its line in the log; uvicorn then finds nothing left to wait for."""
        house = self._gateway.house
        if self._loop is not None and len(house.room):
            house.room.turn_out(NoReadyWorker("The gateway ends; try again.", retry_after=1.0), house.clock())
            self._loop.call_later(LAST_WORD_SECONDS, self._abort_all)
        else:
            self._abort_all()

    def _abort_all(self) -> None:
        for connection in list(self.server_state.connections):
            getattr(connection, "cut", connection.transport.abort)()


def _is_asking(connection: Any) -> bool:
    """It has sent nothing yet, or has begun to ask for more."""
    cycle = connection.cycle
    return cycle is None or (cycle.response_complete and getattr(connection, "in_message", False))


def _no_renewal(sig: int, frame: FrameType | None) -> None:
    log.warning("SIGUSR2: a rolling restart needs several processes (listen.processes)")


def serve(loaded: Loaded, source: SettingsSource) -> int:
    """Run until told to stop, in this process alone; the exit status."""
    settings = loaded[0]
    listen = settings.listen
    try:
        listener = bind(listen.host, listen.port)
    except OSError as wrong:
        return cannot_listen(listen.host, listen.port, wrong)
    set_up_logging(settings.log.level)
    server = build_server(Gateway(*loaded), fast=is_fit())
    server.read_with(source)
    return run(server, listener)


def run(server: Server, listener: socket.socket) -> int:
    """Run until told to stop; the exit status."""
    gc.collect()
    gc.freeze()  # what is built now lives as long as the process
    gc.set_threshold(20_000, 20, 20)  # a request leaves no cycles behind, so there is little to look for
    server.run(sockets=[listener])
    return 0 if server.started else 1


def is_fit() -> bool:
    """Whether this uvicorn has what the fast lane needs."""
    lacking = missing_attributes()
    if lacking:
        log.warning("this uvicorn lacks %s: requests go through the slower ASGI endpoint", ", ".join(lacking))
    return not lacking


def build_server(gateway: Gateway, *, fast: bool) -> Server:
    """The gateway under uvicorn: with the fast lane, or with the ASGI endpoints alone."""
    return Server(uvicorn_config(gateway, fast=fast), gateway)


def uvicorn_config(gateway: Gateway, *, fast: bool) -> uvicorn.Config:
    settings = gateway.settings
    return uvicorn.Config(
        gateway.app,
        http=gateway.lane if fast else Plain,
        loop="uvloop",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        ws="none",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=round(settings.shutdown.drain_seconds) + LAST_SECONDS,
        ssl_certfile=settings.listen.tls.certificate,
        ssl_keyfile=settings.listen.tls.key,
    )
