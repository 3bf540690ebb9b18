"""The fast lane: a sink inside uvicorn's own HTTP protocol class.

uvicorn keeps the sockets, signals, keep-alive and graceful stop; the proxied POSTs are answered right from its parser's
callbacks, with no task and no ASGI event. Everything else goes on to the app. `HttpToolsProtocol` is no public API:
`missing_attributes` is checked at start-up, uvicorn is pinned to a tested range, and the ASGI endpoint stands in when
the check fails.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from math import inf
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from router.contracts import Teller
from router.errors import HeadersTooLarge, InvalidRequest, Refusal
from router.proxy.fast_sink import FastSink
from router.proxy.sweep import Sweep

USED = ("connections", "cycle", "expect_100_continue", "flow", "headers", "loop", "parser", "pipeline", "server_state",
        "tasks", "timeout_keep_alive", "timeout_keep_alive_task", "transport")  # fmt: skip
METHODS = ("connection_lost", "connection_made", "data_received", "on_body", "on_header", "on_headers_complete",
           "on_message_begin", "on_message_complete", "on_response_complete", "pause_writing", "resume_writing",
           "send_400_response", "shutdown")  # fmt: skip
LINGER_SECONDS = 2.0  # a client still sending what was refused gets that long to read why


def missing_attributes() -> list[str]:
    """What this lane uses and this uvicorn lacks; empty when all is well."""
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    lacking = [name for name in METHODS if not callable(getattr(HttpToolsProtocol, name, None))]
    loop = asyncio.new_event_loop()
    try:
        probe = HttpToolsProtocol(
            Config(app=_no_app, log_config=None, interface="asgi3", ws="none"), ServerState(), {}, _loop=loop
        )
        lacking += [name for name in USED if not hasattr(probe, name)]
    except Exception as wrong:
        lacking.append(f"its constructor ({type(wrong).__name__})")
    finally:
        loop.close()
    return lacking


async def _no_app(*_: Any) -> None:
    """Stands for an application in the check."""


class ClientLimits:
    """Seconds and bytes that a client may take."""

    def __init__(self, read_seconds: float, write_seconds: float, header_bytes: int) -> None:
        self.read_seconds, self.write_seconds, self.header_bytes = read_seconds, write_seconds, header_bytes


class FastLane(HttpToolsProtocol):
    """One client connection. Subclassed by `lane_for` with the house it belongs to."""

    teller: ClassVar[Teller]
    limits: ClassVar[ClientLimits]
    sweep: ClassVar[Sweep]
    emit_refused: ClassVar[Any]

    deadline = inf
    _sink: FastSink | None = None
    _in_message = _in_head = False
    _head_bytes = _read_bytes = 0

    # Reading.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.deadline = self.sweep.clock() + self.limits.read_seconds
        self.sweep.watch(self)

    def data_received(self, data: bytes) -> None:
        self._read_bytes = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("")
        except httptools.HttpParserUpgrade:
            self._unsupported_upgrade_warning()
        if self._in_message:
            self._more_to_come()

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_message = self._in_head = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        self.deadline = inf
        if self._head_bytes + self._read_bytes > self.limits.header_bytes and self._head_too_large():
            self._refuse_and_close(HeadersTooLarge(f"The headers are larger than {self.limits.header_bytes} bytes."))
            return
        place = self.teller.paths.get(self.url) or self.teller.paths.get(self.url.partition(b"?")[0])
        if place is None or self.parser.get_method() != b"POST" or not self._free() or self.parser.should_upgrade():
            self._leave_to_app()
            return
        keep_alive = self.parser.should_keep_alive()
        old = self.parser.get_http_version() == "1.0"
        sink = FastSink(self, old=old, keep_alive=keep_alive and not old)
        self.cycle = self._sink = sink  # type: ignore[assignment]
        sink.begin(self.teller.open(place, self.url, self.headers, sink), self.headers)
        if self.expect_100_continue and not sink.response_complete:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        cycle: object = self.cycle
        if type(cycle) is FastSink:
            cycle.feed(body)
        elif not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        cycle: object = self.cycle
        if type(cycle) is FastSink:
            cycle.received()
        elif not self.transport.is_closing():
            super().on_message_complete()

    def _leave_to_app(self) -> None:
        """uvicorn's own way; what it sets up at a message's begin is made up for here, since few requests need it."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers  # the list that the scope holds
        super().on_headers_complete()

    def _free(self) -> bool:
        """No answer is under way on this connection; a pipelined request waits its turn in uvicorn's own queue."""
        return self.cycle is None or self.cycle.response_complete

    def _head_too_large(self) -> bool:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        return size > self.limits.header_bytes

    # Limits on the client.

    def _more_to_come(self) -> None:
        if self._in_head:
            self._head_bytes += self._read_bytes
            if self._head_bytes > self.limits.header_bytes:
                self._refuse_and_close(
                    HeadersTooLarge(f"The headers are larger than {self.limits.header_bytes} bytes.")
                )
                return
            if self._head_bytes > self._read_bytes:
                return  # the head as a whole has the time, whatever trickles in
        self.deadline = self.sweep.clock() + self.limits.read_seconds

    def overdue(self, now: float) -> None:
        self.deadline = inf
        sink = self._sink
        if sink is not None and not sink.response_complete and self._in_message:
            sink.late()
        elif self._sink is None or self._sink.response_complete:
            self.transport.close()  # idle for long enough, or done lingering
        else:
            self.transport.abort()  # it does not read what it asked for

    def linger(self) -> None:
        """The answer is out and the client still sends: read on for a moment, so that no reset destroys the answer."""
        self.deadline = self.sweep.clock() + LINGER_SECONDS

    def reset_on_close(self) -> None:
        """Where only the connection's end ends a body, a cut must not look like one."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def send_400_response(self, msg: str = "") -> None:
        self._refuse_and_close(InvalidRequest("The request is not valid HTTP."))

    def _refuse_and_close(self, refusal: Refusal) -> None:
        if self._sink is not None and not self._sink.response_complete:
            self._sink.gone()
        elif self.transport.is_closing():
            return
        content_type, body = next(iter(self.teller.paths.values())).dialect.refusal(refusal)
        self.transport.write(
            STATUS_LINE[refusal.status]
            + b"content-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (content_type, len(body), body)
        )
        self.emit_refused(refusal)
        self.transport.close()

    # Writing, and the end.

    def on_response_complete(self) -> None:
        """As uvicorn's, but a keep-alive connection's time is swept and needs no timer."""
        cycle: object = self.cycle
        if self.pipeline or type(cycle) is not FastSink:
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self.deadline = self.sweep.clock() + self.timeout_keep_alive

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._sink is not None and not self._sink.response_complete:
            self._sink.pause()
            self.deadline = self.sweep.clock() + self.limits.write_seconds

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._sink is not None and not self._sink.response_complete:
            self.deadline = inf
            self._sink.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.sweep.forget(self)
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.gone()
        super().connection_lost(exc)


def lane_for(house: Teller, limits: ClientLimits, sweep: Sweep, emit_refused: Any) -> type[FastLane]:
    """The protocol class to hand to uvicorn as `http=`."""
    facts = {"teller": house, "limits": limits, "sweep": sweep, "emit_refused": staticmethod(emit_refused)}
    return type("HouseLane", (FastLane,), facts)
