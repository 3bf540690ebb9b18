"""What a client may take: time and bytes. The half of the fast lane that sends clients away.

Each limit is a number that moves while bytes come; the sweep finds what is overdue. A head has `read_seconds` as a
whole. A body has them between two pieces; and since one byte now and then would be a piece too, it must come at
`SLOWEST` bytes a second on the whole once it has had `PATIENCE` times that long.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from router.contracts import Dialect, Teller
from router.errors import HeadersTooLarge, InvalidRequest, Refusal, RequestTimeout
from router.proxy.fast_sink import FastSink
from router.proxy.headers import request_id
from router.proxy.sweep import PATIENCE, SLOWEST, ClientLimits, Sweep

LINGER_SECONDS = 2.0  # a client still sending what was refused gets that long to read why
FRAMING = 8  # bytes of framing for one of the body: chunks of a single byte pass, endless extensions do not


class Guard(HttpToolsProtocol):
    """One client connection, its limits and its end."""

    teller: ClassVar[Teller]
    limits: ClassVar[ClientLimits]
    sweep: ClassVar[Sweep]
    emit_refused: ClassVar[Any]

    deadline = inf
    _sink: FastSink | None = None
    _running: RequestResponseCycle | None = None  # of the app's, while others may wait behind it
    _in_message = _in_head = False
    _head_bytes = _read_bytes = _unread = 0
    _raw_bytes = _body_bytes = _quiet_bytes = 0  # of a request that takes more than one read
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.deadline = self.sweep.clock() + self.limits.read_seconds
        self.sweep.watch(self)

    # While it sends.

    def _more_to_come(self) -> None:
        """A read is over and the request is not."""
        cycle: object = self.cycle
        limits, now = self.limits, self.sweep.clock()
        if self._in_head:
            self._head_bytes += self._read_bytes
            if self._head_bytes > limits.header_bytes:
                self._send_away(self._headers_too_large())
                return
            if self._head_bytes > self._read_bytes:
                return  # the head as a whole has the time, whatever trickles in
        elif type(cycle) is FastSink and cycle.response_complete:
            return  # it lingers
        elif not self._raw_bytes:
            self._since, self._raw_bytes, self._body_bytes, self._quiet_bytes = now, 1, 0, 0
        elif not self._is_fair(now):
            return
        self.deadline = now + limits.read_seconds

    def _is_fair(self, now: float) -> bool:
        """A body goes on: not too slowly, nor with more framing than body."""
        self._raw_bytes += self._read_bytes
        self._quiet_bytes += self._read_bytes
        most = self.limits.header_bytes
        if self._quiet_bytes > most or self._raw_bytes - self._body_bytes > most + FRAMING * self._body_bytes:
            self._send_away(InvalidRequest("The body has more framing than content."))
            return False
        if now - self._since > self.limits.read_seconds * PATIENCE + self._raw_bytes / SLOWEST:
            self._send_away(RequestTimeout("The body comes too slowly: a kilobyte a second is the least."))
            return False
        return True

    def _headers_too_large(self) -> Refusal:
        return HeadersTooLarge(f"The headers are larger than {self.limits.header_bytes} bytes.")

    def _head_too_large(self) -> bool:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        return size > self.limits.header_bytes

    # When its time is over.

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
            self._send_away(RequestTimeout("The headers did not come within timeouts.client_read_seconds."))
        elif sink is not None and not sink.response_complete and self._in_message:
            sink.late()
        else:
            self.transport.close()  # idle for long enough, or done lingering

    def linger(self) -> None:
        """The answer is out and the client still sends: read on for a moment, so that no reset destroys the answer."""
        self.deadline = self.sweep.clock() + LINGER_SECONDS

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

    # How it is sent away.

    def send_400_response(self, msg: str = "") -> None:
        self._send_away(InvalidRequest(msg or "The request is not valid HTTP."))

    def _send_away(self, refusal: Refusal) -> None:
        """Refuse and close."""
        cycle: object = self.cycle
        sink = self._sink
        if self.transport.is_closing():
            return
        if sink is not None and cycle is sink and not sink.response_complete and not sink.whole:
            sink.refuse(refusal)  # it is this request that goes wrong, and its answer has not begun
            self.transport.close()
            return
        own_id = request_id(None)
        self.emit_refused(refusal, own_id, self.client[0] if self.client else "")
        if not self._free():
            self._stop()
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

    def _free(self) -> bool:
        """No answer is under way on this connection; a pipelined request waits its turn in uvicorn's own queue."""
        return self.cycle is None or self.cycle.response_complete
