"""The fast lane: a sink inside uvicorn's own HTTP protocol class.

uvicorn keeps the sockets, signals, keep-alive and graceful stop; the proxied POSTs are answered right from its parser's
callbacks, with no task and no ASGI event. Everything else goes on to the app. `HttpToolsProtocol` is no public API:
uvicorn is pinned to a tested range, `fit.py` checks it at start-up, and the ASGI endpoint stands in when that fails.
"""

from __future__ import annotations

import logging
from math import inf
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from router.contracts import Teller
from router.errors import HeadersTooLarge, InvalidRequest, Refusal
from router.proxy.fast_sink import FastSink
from router.proxy.guard import Guard
from router.proxy.head_law import MOST_FIELDS, TARGET, WATCHED, field_fault, start_fault
from router.proxy.sweep import ClientLimits, Sweep

log = logging.getLogger("router")

MOST_PIPELINED = 32  # requests behind the one that runs; then the client is read no further


class FastLane(Guard):
    """One client connection. Subclassed by `lane_for` with the house it belongs to."""

    _offers = False
    closing: ClassVar[bool] = False  # every answer is its connection's last
    _hosts = 0
    _host = b""  # the last that was found to be one

    # Reading.

    def data_received(self, data: bytes) -> None:
        self._read_bytes = len(data)
        if self.timeout_keep_alive_task is not None:  # the app's last answer set it, and the lane's know none
            self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as wrong:
            self._send_away(_refusal(wrong))
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        if self._in_message:
            self._more_to_come()

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_message = self._in_head = True
        self._head_bytes = self._hosts = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are no headers
            name = name.lower()
            if name in WATCHED:
                self._watch(name, value)
            self.headers.append((name, value))

    def _watch(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
            if value == self._host:
                return
            self._host = value
        elif name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
            return
        fault = field_fault(name, value, self.parser.get_http_version())
        if fault is not None:
            self._host = b""
            raise InvalidRequest(fault)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self.transport.is_closing():
            return  # what stands behind a refusal or a last request is not served
        if self._head_bytes + self._read_bytes > self.limits.header_bytes and self._head_too_large():
            raise self._headers_too_large()
        version = self.parser.get_http_version()
        if self._hosts != 1 or version != "1.1" or len(self.headers) > MOST_FIELDS or b"#" in self.url:
            self._check(version)
        if self.parser.should_upgrade():
            self._offers = True
            return
        place = self.teller.paths.get(self.url) or self.teller.paths.get(self.url.partition(b"?")[0])
        busy = not self._free() or self.flow.write_paused  # the app waits until the last answer is read
        if place is None or busy or self.parser.get_method() != b"POST":
            self._leave_to_app()
            return
        keep_alive = self.parser.should_keep_alive() and not self.closing
        old = version == "1.0"
        sink = FastSink(self, old=old, keep_alive=keep_alive and not old)
        self.cycle = self._sink = sink  # type: ignore[assignment]
        sink.begin(self.teller.open(place, self.url, self.headers, sink), self.headers)
        if self.expect_100_continue and not sink.response_complete:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check(self, version: str) -> None:
        fault = start_fault(version, self.url, self._hosts)
        if fault is not None:
            raise InvalidRequest(fault)
        if len(self.headers) > MOST_FIELDS:
            raise HeadersTooLarge(f"There are more than {MOST_FIELDS} header fields.")

    def on_body(self, body: bytes) -> None:
        if self._raw_bytes:
            self._body_bytes += len(body)
            self._quiet_bytes = -self._read_bytes  # this read brings some of it
        cycle: object = self.cycle
        if type(cycle) is FastSink:
            cycle.feed(body)
        elif not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        self._raw_bytes = 0
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
        if not TARGET.match(self.url):
            raise InvalidRequest("A target is a path, or http://HOST/PATH.")
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


def _refusal(wrong: httptools.HttpParserError) -> Refusal:
    """What the parser found, or one of its callbacks."""
    cause = wrong.__context__ if isinstance(wrong, httptools.HttpParserCallbackError) else None
    if isinstance(cause, Refusal):
        return cause
    if cause is not None and not isinstance(cause, httptools.HttpParserError):
        log.error("a fault in the gateway while it read a request", exc_info=cause)
    return InvalidRequest("The request is not valid HTTP.")


def lane_for(house: Teller, limits: ClientLimits, sweep: Sweep, emit_refused: Any) -> type[FastLane]:
    """The protocol class to hand to uvicorn as `http=`."""
    facts = {"teller": house, "limits": limits, "sweep": sweep, "emit_refused": staticmethod(emit_refused)}
    return type("HouseLane", (FastLane,), facts)
