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
import sys
from collections.abc import Iterator
from types import FrameType

import uvicorn

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
            host, port = sockets[0].getsockname()[:2]
            scheme = "https" if self.config.ssl else "http"
            shown = f"[{host}]" if ":" in host else host
            with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody need be listening to us
                sys.stdout.write(f"prefix-router listening on {scheme}://{shown}:{port}\n")
                sys.stdout.flush()

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
        house = self._gateway.house
        if house.draining:
            self.should_exit = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._cut_all)
            return
        house.draining = True
        grace = self._gateway.settings.shutdown.grace_seconds if sig == signal.SIGTERM else 0.0
        if self._loop is None:
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self._loop.call_later, grace, self._stop)

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
    """Run until told to stop; the exit status."""
    listen = settings.listen
    try:
        listener = bind(listen.host, listen.port)
    except OSError as wrong:
        sys.stderr.write(f"prefix-router: cannot listen on {listen.host}:{listen.port}: {wrong.strerror or wrong}\n")
        return 1
    _set_up_logging(settings.log.level)
    lacking = missing_attributes()
    if lacking:
        log.warning("this uvicorn lacks %s: requests go through the slower ASGI endpoint", ", ".join(lacking))
    server = build_server(Gateway(settings, origins), fast=not lacking)
    gc.collect()
    gc.freeze()  # what is built now lives as long as the process
    gc.set_threshold(20_000, 20, 20)  # a request leaves no cycles behind, so there is little to look for
    server.run(sockets=[listener])
    return 0 if server.started else 1


def build_server(gateway: Gateway, *, fast: bool) -> Server:
    """The gateway under uvicorn: with the fast lane, or with the ASGI endpoints alone."""
    settings = gateway.settings
    config = uvicorn.Config(
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
        backlog=4096,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=round(settings.shutdown.drain_seconds) + LAST_SECONDS,
        ssl_certfile=settings.listen.tls.certificate,
        ssl_keyfile=settings.listen.tls.key,
    )
    return Server(config, gateway)


def bind(host: str, port: int) -> socket.socket:
    """A bound socket, not listening yet. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _set_up_logging(level: str) -> None:
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    for chatty in ("httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
