"""Running the gateway under uvicorn, and ending it as the contract says.

SIGTERM: not ready at once, still listening for `shutdown.grace_seconds` so that load balancers notice, then no new
connections, running requests finish within `shutdown.drain_seconds`, exit 0. A second signal ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Iterator
from types import FrameType

import uvicorn

from router.observe.own_log import set_up_logging
from router.processes.listeners import BACKLOG, announce, bind, cannot_listen
from router.proxy.fit import missing_attributes
from router.settings import Settings
from router.wiring import Gateway

log = logging.getLogger("router")

LAST_SECONDS = 5  # for what was cut to end
KEEP_ALIVE_SECONDS = 75  # longer than the usual 60 s of load balancers, so that they close first


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started and sockets:
            self.listening(sockets[0])

    def listening(self, listener: socket.socket) -> None:
        announce(listener, tls=bool(self.config.ssl))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the signal is not raised again at the end: a clean stop is exit 0."""
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, _no_reload)
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

    def cut(self) -> None:
        """At once."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cut_all)

    def _stop(self) -> None:
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_later(self._gateway.settings.shutdown.drain_seconds, self._cut_all)

    def _cut_all(self) -> None:
        """End what still runs, each with its line in the log; uvicorn then finds nothing left to wait for."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _no_reload(sig: int, frame: FrameType | None) -> None:
    log.warning("SIGHUP: reloading is not supported yet; restart to change the settings")


def serve(settings: Settings, origins: dict[str, str]) -> int:
    """Run until told to stop, in this process alone; the exit status."""
    listen = settings.listen
    try:
        listener = bind(listen.host, listen.port)
    except OSError as wrong:
        return cannot_listen(listen.host, listen.port, wrong)
    set_up_logging(settings.log.level)
    return run(build_server(Gateway(settings, origins), fast=is_fit()), listener)


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
        http=gateway.lane if fast else "httptools",
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
