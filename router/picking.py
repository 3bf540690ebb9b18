"""The picker as a process: Envoy's streams over gRPC, the standard health service, and the gateway's own app beside it.

It is the gateway's server without its door for clients, so that probes, settings, signals and reload are the same.
SIGTERM: not serving at once, no new streams after `shutdown.grace_seconds`; a stream that only waits for its response's
end is let go, which Envoy takes for leave to go on without us; the others have `shutdown.drain_seconds`.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import sys
from collections.abc import Callable

import uvicorn

from router.house import House
from router.observe.own_log import set_up_logging
from router.picker.messages import Malformed, read_message
from router.picker.talk import Talk
from router.plugins import build_dialects
from router.processes.listeners import BACKLOG, bind, cannot_listen
from router.reload import Loaded, SettingsSource
from router.rpc.complaints import Complaints
from router.rpc.connection import Connection
from router.rpc.stream import INTERNAL, INVALID_ARGUMENT, Call, Stream
from router.sections.listen import Tls
from router.server import Server, uvicorn_config
from router.settings import Settings
from router.wiring import Gateway

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
CHECK = "/grpc.health.v1.Health/Check"
LIVENESS, EXT_PROC = b"liveness", b"envoy.service.ext_proc.v3.ExternalProcessor"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"  # HealthCheckResponse.status
ENVELOPE = 1 << 20  # bytes that a message may have besides a body
LOOK_SECONDS = 1.0  # between two looks at the workers
ENDING_SECONDS = 0.05  # between two looks at whether the last streams are over


class Picking:
    """One stream: a request, from its head to its response's end."""

    def __init__(self, calls: Calls, stream: Stream) -> None:
        self.stream = stream
        self._calls = calls
        self.talk = Talk(calls.house, calls.usual, self._send)
        calls.open[self] = None

    def message(self, data: bytes) -> None:
        try:
            self.talk.take(read_message(data))
        except Malformed as wrong:
            self._calls.complaints.say(f"a peer of the picker broke ext_proc: {wrong}")
            self._fail(INVALID_ARGUMENT, str(wrong))
        except Exception:  # a fault in one request's decision is no other's
            self._calls.complaints.say("a fault in the picker", fault=True)
            self._fail(INTERNAL, "the picker failed on this request; its log says why")
        else:
            self._send()

    def _fail(self, status: int, text: str) -> None:
        self.talk.over()  # though the peer may be slow to take the end
        self.stream.end(status, text)

    def half_closed(self) -> None:
        self.talk.over()
        self.stream.end()

    def over(self) -> None:
        self._calls.open.pop(self, None)
        self.talk.over()

    def _send(self) -> None:
        out, self.talk.out = self.talk.out, []
        for data in out:
            self.stream.send(data)
        if self.talk.closed and out:
            self.stream.end()  # it answered itself


class Checking:
    """grpc.health.v1: `liveness` is always well, the protocol's own name until the end begins, so that Envoy goes to
    another picker in time; any other name is readiness, for which a worker must be ready too."""

    def __init__(self, calls: Calls, stream: Stream) -> None:
        self._calls, self._stream = calls, stream

    def message(self, data: bytes) -> None:
        service = data[2 : 2 + data[1]] if len(data) > 2 and data[0] == 0x0A else b""  # its only field, a short text
        well = service == LIVENESS or (self._calls.serves() if service == EXT_PROC else self._calls.is_ready())
        self._stream.send(SERVING if well else NOT_SERVING)
        self._stream.end()

    def half_closed(self) -> None:
        """The answer was given at once."""

    def over(self) -> None:
        """Nothing was taken."""


class Calls:
    """The streams that are open, and what opens them."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.usual = next(dialect for dialect in build_dialects() if dialect.name == "openai")
        self.open: dict[Picking, None] = {}
        self.complaints = Complaints(house.clock)

    def opened(self, path: str, stream: Stream) -> Call | None:
        if path == PROCESS:
            return Picking(self, stream)
        return Checking(self, stream) if path == CHECK else None

    def serves(self) -> bool:
        return not self.house.draining

    def is_ready(self) -> bool:
        return self.serves() and (bool(self.house.fleet.ready()) or self.house.settings.picker.fail_open)

    def leave(self, *, at_once: bool = False) -> None:
        """Let those go that need us no more, or all, whether or not their peer still takes anything."""
        for each in list(self.open):
            if at_once or each.talk.may_leave:
                each.stream.end()
            if at_once:
                each.stream.abort()


class PickerServer(Server):
    """The gateway's server; `announced` is told the port of gRPC."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, announced: Callable[[int], None]) -> None:
        super().__init__(config, gateway)
        self.calls = Calls(gateway.house)
        self.connections: set[Connection] = set()
        self._house = gateway.house
        self._announced = announced
        self._listening: asyncio.Server | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started:
            return
        settings = self._house.settings.picker
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                self._connected,
                settings.host, settings.port, ssl=_context(settings.tls), backlog=BACKLOG,
            )  # fmt: skip
        except OSError as wrong:
            cannot_listen(settings.host, settings.port, wrong)
            self.started, self.should_exit = False, True
            return
        self._own.append(asyncio.create_task(self._look(), name="looks at the workers"))
        if not sockets and self.reloader is not None:
            self._own.append(asyncio.create_task(self.reloader.follow(), name="the settings' file"))
        self._announced(self._listening.sockets[0].getsockname()[1])

    def _connected(self) -> Connection:
        most = self._house.most_body_bytes + ENVELOPE
        return Connection(self.calls.opened, most, self.connections, self.calls.complaints)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._listening is not None:
            self._listening.close()
            for connection in list(self.connections):
                connection.leave()
            until = self._house.clock() + self._house.settings.shutdown.drain_seconds
            while self.calls.open:
                self.calls.leave(at_once=self._cutting or self._house.clock() > until)
                await asyncio.sleep(ENDING_SECONDS)
        await super().shutdown(sockets)

    async def _look(self) -> None:
        """Names are looked up before a request needs their addresses, and workers that do badly are found, as the
        gateway does it while it has connections to them."""
        house = self._house
        while True:
            for seat in house.fleet.seats.values():
                house.pool(seat)
            house.watch.look(house.clock())
            await asyncio.sleep(LOOK_SECONDS)


def _context(tls: Tls) -> ssl.SSLContext | None:
    if tls.certificate is None or tls.key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    context.set_alpn_protocols(["h2"])
    return context


def serve_picks(loaded: Loaded, source: SettingsSource) -> int:
    """Run until told to stop; the exit status."""
    settings: Settings = loaded[0]
    sockets = []
    if settings.picker.http_port is not None:
        host = settings.listen.host
        try:
            sockets = [bind(host, settings.picker.http_port)]
        except OSError as wrong:
            return cannot_listen(host, settings.picker.http_port, wrong)
    set_up_logging(settings.log.level)
    gateway = Gateway(*loaded)
    server = PickerServer(uvicorn_config(gateway, fast=True), gateway, lambda port: _announce(settings, port))
    server.read_with(source)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # as the gateway: a request leaves no cycles behind
    server.run(sockets=sockets)
    return 0 if server.started else 1


def _announce(settings: Settings, port: int) -> None:
    host = settings.picker.host
    scheme = "https" if settings.picker.tls.certificate else "http"
    where = f"[{host}]" if ":" in host else host
    sys.stdout.write(f"prefix-router picker listening on {scheme}://{where}:{port}\n")
    sys.stdout.flush()
