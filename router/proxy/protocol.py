"""The fast lane: a sink inside uvicorn's own HTTP protocol class.

uvicorn keeps the sockets, signals, keep-alive and graceful stop; the proxied POSTs are answered right from its parser's
callbacks, with no task and no ASGI event. Everything else goes on to the app. `HttpToolsProtocol` is no public API:
uvicorn is pinned to a tested range, `fit.py` checks it at start-up, and the ASGI endpoint stands in when that fails.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from router.contracts import Dialect, Teller
from router.errors import HeadersTooLarge, InvalidRequest, Refusal, RequestTimeout
from router.proxy.fast_sink import FastSink
from router.proxy.headers import request_id
from router.proxy.sweep import ClientLimits, Sweep

MOST_PIPELINED = 32  # requests behind the one that runs; then the client is read no further
LINGER_SECONDS = 2.0  # a client still sending what was refused gets that long to read why


class FastLane(HttpToolsProtocol):
    """One client connection. Subclassed by `lane_for` with the house it belongs to."""

    teller: ClassVar[Teller]
    limits: ClassVar[ClientLimits]
    sweep: ClassVar[Sweep]
    emit_refused: ClassVar[Any]

    deadline = inf
    _sink: FastSink | None = None
    _running: RequestResponseCycle | None = None  # of the app's, while others may wait behind it
    _in_message = _in_head = _offers = False
    _head_bytes = _read_bytes = _unread = 0

    # Reading.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.deadline = self.sweep.clock() + self.limits.read_seconds
        self.sweep.watch(self)

    def data_received(self, data: bytes) -> None:
        self._read_bytes = len(data)
        if self.timeout_keep_alive_task is not None:  # the app's last answer set it, and the lane's know none
            self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("")
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
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
        if self._head_bytes + self._read_bytes > self.limits.header_bytes and self._head_too_large():
            self._refuse_headers()
            return
        if self.parser.should_upgrade():
            self._offers = True
            return
        place = self.teller.paths.get(self.url) or self.teller.paths.get(self.url.partition(b"?")[0])
        if place is None or self.parser.get_method() != b"POST" or not self._free():
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
        if not self.flow.write_paused:
            self.deadline = inf  # the client has said all; from here on the worker's limits count
        cycle: object = self.cycle
        if type(cycle) is FastSink and not self._offers:
            cycle.received()
        elif not self._offers and not self.transport.is_closing():
            super().on_message_complete()

    def _decline(self, rest: bytes) -> None:
        """An offer of another protocol (Java's client offers HTTP/2) is ignored. The parser took what follows for that
        protocol, so a new one reads the request again, without the offer."""
        self._offers = False
        first = self.parser.get_method(), self.url, self.parser.get_http_version().encode()
        head = b"".join(b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade")
        if first[0] == b"CONNECT":
            self.send_400_response()
            return
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"%s %s HTTP/%s\r\n%s\r\n%s" % (*first, head, rest))

    def _leave_to_app(self) -> None:
        """uvicorn's own way; what it sets up at a message's begin is made up for here, since few requests need it."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers  # the list that the scope holds
        super().on_headers_complete()
        self.headers = []  # the scope has its own: trailers are no headers
        if 0 < len(self.pipeline) < MOST_PIPELINED:
            self.flow.resume_reading()  # or the client's leaving would not be noticed

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _free(self) -> bool:
        """No answer is under way on this connection; a pipelined request waits its turn in uvicorn's own queue."""
        return self.cycle is None or self.cycle.response_complete

    def _head_too_large(self) -> bool:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        return size > self.limits.header_bytes

    def _refuse_headers(self) -> None:
        self._refuse_and_close(HeadersTooLarge(f"The headers are larger than {self.limits.header_bytes} bytes."))

    # Limits on the client.

    def _more_to_come(self) -> None:
        cycle: object = self.cycle
        if self._in_head:
            self._head_bytes += self._read_bytes
            if self._head_bytes > self.limits.header_bytes:
                self._refuse_headers()
                return
            if self._head_bytes > self._read_bytes:
                return  # the head as a whole has the time, whatever trickles in
        elif type(cycle) is FastSink and cycle.response_complete:
            return  # it lingers
        self.deadline = self.sweep.clock() + self.limits.read_seconds

    def overdue(self, now: float) -> None:
        self.deadline = now + LINGER_SECONDS  # if closing takes longer, what is left goes unread
        sink = self._sink
        unread = self.transport.get_write_buffer_size()
        if self.flow.write_paused and unread < self._unread and not self.transport.is_closing():
            self._unread = unread  # it reads, if slowly
            self.deadline = now + self.limits.write_seconds
        elif self.flow.write_paused or self.transport.is_closing():
            self.transport.abort()  # it does not read what it asked for
        elif self._in_head:
            self._refuse_and_close(RequestTimeout("The headers did not come within timeouts.client_read_seconds."))
        elif sink is not None and not sink.response_complete and self._in_message:
            sink.late()
        else:
            self.transport.close()  # idle for long enough, or done lingering

    def linger(self) -> None:
        """The answer is out and the client still sends: read on for a moment, so that no reset destroys the answer."""
        self.deadline = self.sweep.clock() + LINGER_SECONDS

    def send_400_response(self, msg: str = "") -> None:
        self._refuse_and_close(InvalidRequest("The request is not valid HTTP."))

    def _refuse_and_close(self, refusal: Refusal) -> None:
        if self.transport.is_closing():
            return
        own_id = request_id(None)
        self.emit_refused(refusal, own_id)
        if not self._free():
            self._stop()
            if not self._in_message or self._in_head or self.pipeline:
                self.transport.abort()  # an answer may have begun, and this one must not stand in it
                return
        content_type, body = self._dialect().refusal(refusal)
        self.transport.write(
            STATUS_LINE[refusal.status]
            + b"content-type: %s\r\nx-request-id: %s\r\n" % (content_type, own_id.encode())
            + b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
        )
        self.transport.close()

    def _dialect(self) -> Dialect:
        paths = self.teller.paths
        place = paths.get(self.url.partition(b"?")[0]) if self._in_message else None
        return place.dialect if place else next(p.dialect for p in paths.values() if p.dialect.name == "openai")

    # Writing, and the end.

    def on_response_complete(self) -> None:
        """As uvicorn's, but a keep-alive connection's time is swept and needs no timer."""
        cycle: object = self.cycle
        if self.pipeline or type(cycle) is not FastSink:
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        unread = self.flow.write_paused or self.transport.is_closing()
        if not self.transport.is_closing():
            self.flow.resume_reading()
        self.deadline = self.sweep.clock() + (self.limits.write_seconds if unread else self.timeout_keep_alive)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self.deadline = self.sweep.clock() + self.limits.write_seconds
        if self._sink is not None:
            self._sink.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.deadline = self.sweep.clock() + self.timeout_keep_alive if self._free() else inf
        if self._sink is not None:
            self._sink.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.sweep.forget(self)
        self._stop()
        super().connection_lost(exc)

    def _stop(self) -> None:
        """The client has gone, or is sent away: whatever runs for it ends."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.gone()
        running, self._running = self._running, None
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()


def lane_for(house: Teller, limits: ClientLimits, sweep: Sweep, emit_refused: Any) -> type[FastLane]:
    """The protocol class to hand to uvicorn as `http=`."""
    facts = {"teller": house, "limits": limits, "sweep": sweep, "emit_refused": staticmethod(emit_refused)}
    return type("HouseLane", (FastLane,), facts)
