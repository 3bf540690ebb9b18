"""The fast lane's reader: the target of the parser's callbacks for one client connection.

The proxied POSTs are answered right from here, with no task and no ASGI event. Everything else is handed to uvicorn's
own protocol object, the `shell`, as if it had read it itself.
"""

from __future__ import annotations

import logging
from math import inf
from typing import Any, Final

import httptools

from router.errors import HeadersTooLarge, InvalidRequest, Refusal
from router.proxy.fast_sink import FastSink
from router.proxy.guard import Guard, Terms
from router.proxy.head_law import MOST_FIELDS, TARGET, WATCHED, field_fault, start_fault
from router.proxy.headers import lowered

log = logging.getLogger("router")

MOST_PIPELINED: Final = 32  # requests behind the one that runs; then the client is read no further


class Lane(Guard):
    """Reads one client connection."""

    def __init__(self, shell: Any, terms: Terms) -> None:
        super().__init__(shell, terms)
        self.parser: Any = parser_for(self)
        self.expects = False  # a 100 Continue
        self.offers = False  # another protocol
        self.timed = False  # the app's last answer set uvicorn's own keep-alive timer; the lane's answers set none
        self.hosts = 0
        self.host = b""  # the last that was found to be one

    def data_received(self, data: bytes) -> None:
        self.read_bytes = len(data)
        if self.timed:
            self.timed = False
            self.shell._unset_keepalive_if_required()  # noqa: SLF001
        rest = data
        while rest:
            rest = self._feed(rest)
        if self.in_message:
            self.more_to_come()

    def _feed(self, data: bytes) -> bytes:
        """What is to be read once more, by another parser."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as wrong:
            self.send_away(_refusal(wrong))
        except httptools.HttpParserUpgrade as offer:
            return self._declined(data[offer.args[0] :])
        return b""

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expects = False
        self.in_message = self.in_head = True
        self.head_bytes = self.hosts = 0

    def on_url(self, url: bytes) -> None:
        self.url = self.url + url if self.url else url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # trailers are no headers
            name = lowered(name)
            if name in WATCHED:
                self._watch(name, value)
            self.headers.append((name, value))

    def _watch(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self.hosts += 1
            if value == self.host:
                return
            self.host = value
        elif name == b"expect":
            self.expects = value.lower() == b"100-continue"
            return
        fault = field_fault(name, value, self.parser.get_http_version())
        if fault is not None:
            self.host = b""
            raise InvalidRequest(fault)

    def on_headers_complete(self) -> None:
        self.in_head = False
        if self.transport.is_closing():
            return  # what stands behind a refusal or a last request is not served
        most = self.terms.limits.header_bytes
        if self.head_bytes + self.read_bytes > most and self.head_size() > most:
            raise self.headers_too_large()
        parser, url = self.parser, self.url
        version: str = parser.get_http_version()
        if self.hosts != 1 or version != "1.1" or len(self.headers) > MOST_FIELDS or b"#" in url:
            self._check(version)
        if parser.should_upgrade():
            self.offers = True
            return
        place = self.terms.paths.get(url)
        if place is None:
            place = self.terms.paths.get(url.partition(b"?")[0])
        busy = self.write_paused or not self.is_free()  # the app waits until the last answer is read
        if place is None or busy or parser.get_method() != b"POST":
            self._leave_to_app()
            return
        keep_alive = parser.should_keep_alive() and not self.terms.closing
        old = version == "1.0"
        sink = FastSink(self, old=old, keep_alive=keep_alive and not old)
        self.shell.cycle = self.sink = self.mine = sink
        self.pen.begin()
        sink.begin(self.terms.teller.open(place, url, self.headers, sink), self.headers)
        if self.expects and not old and not sink.response_complete:
            self.pen.write([b"HTTP/1.1 100 Continue\r\n\r\n"])

    def _check(self, version: str) -> None:
        fault = start_fault(version, self.url, self.hosts)
        if fault is not None:
            raise InvalidRequest(fault)
        if len(self.headers) > MOST_FIELDS:
            raise HeadersTooLarge(f"There are more than {MOST_FIELDS} header fields.")

    def on_body(self, body: bytes) -> None:
        if self.raw_bytes:
            self.body_bytes += len(body)
            self.quiet_bytes = -self.read_bytes  # this read brings some of it
        if self.mine is not None:
            self.mine.feed(body)
        elif not self.transport.is_closing():
            self.shell.on_body(body)

    def on_message_complete(self) -> None:
        self.in_message = False
        self.raw_bytes = 0
        if not self.write_paused:
            self.deadline = inf  # the client has said all; from here on the worker's limits count
        if self.offers:
            return
        if self.mine is not None:
            self.mine.received()
        elif not self.transport.is_closing():
            self.shell.on_message_complete()

    # What is not for the lane.

    def _declined(self, rest: bytes) -> bytes:
        """An offer of another protocol (Java's client offers HTTP/2) is ignored. The parser took what follows for that
        protocol, so a new one reads the request again, without the offer."""
        self.offers = False
        method, url, version = self.parser.get_method(), self.url, self.parser.get_http_version().encode()
        head = b"".join([b"%s: %s\r\n" % (name, value) for name, value in self.headers if name != b"upgrade"])
        if method == b"CONNECT":
            self.send_away(InvalidRequest("The request is not valid HTTP."))
            return b""
        self.parser = self.shell.parser = parser_for(self)
        return b"%s %s HTTP/%s\r\n%s\r\n%s" % (method, url, version, head, rest)

    def _leave_to_app(self) -> None:
        """uvicorn's own way; what it sets up at a message's begin is made up for here, since few requests need it."""
        if not TARGET.match(self.url):
            raise InvalidRequest("A target is a path, or http://HOST/PATH.")
        self.mine = None
        shell = self.shell
        shell.on_message_begin()
        shell.url, shell.expect_100_continue = self.url, self.expects
        shell.headers += self.headers  # the list that the scope holds
        shell.on_headers_complete()
        self.headers = []  # the scope has its own: trailers are no headers
        if 0 < len(shell.pipeline) < MOST_PIPELINED:
            shell.flow.resume_reading()  # or the client's leaving would not be noticed

    # The end of an answer.

    def answered(self) -> None:
        """One of the lane's. As uvicorn's, but a keep-alive connection's time is swept and needs no timer."""
        shell = self.shell
        if shell is None:
            return
        if shell.pipeline:
            self.timed = True
            shell.on_response_complete()
            return
        shell.server_state.total_requests += 1
        closing = self.transport.is_closing()
        if not closing and shell.flow.read_paused:
            shell.flow.resume_reading()
        terms = self.terms
        unread = self.write_paused or closing
        self.deadline = terms.sweep.clock() + (terms.limits.write_seconds if unread else self.keep_alive_seconds)


def parser_for(reader: Any) -> Any:
    """A parser as uvicorn sets its own up: what follows a last request is refused by us, not by the parser."""
    parser = httptools.HttpRequestParser(reader)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _refusal(wrong: Exception) -> Refusal:
    """What the parser found, or one of its callbacks."""
    cause = wrong.__context__ if isinstance(wrong, httptools.HttpParserCallbackError) else None
    if isinstance(cause, Refusal):
        return cause
    if cause is not None and not isinstance(cause, httptools.HttpParserError):
        log.error("a fault in the gateway while it read a request", exc_info=cause)
    return InvalidRequest("The request is not valid HTTP.")
