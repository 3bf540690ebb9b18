"""The state of one ext_proc stream: one request and its response, message by message. No I/O.

What is needed of a body depends on how Envoy sends it. Full duplex: nothing is answered until the choice is made, then
the head's answer goes out and the body back after it, in pieces. Buffered: Envoy keeps the body, and the choice is the
answer to it. Otherwise no body comes, or none that could be waited for, and the choice is made from the head alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from router.contracts import Dialect, Place
from router.house import House
from router.picker import messages
from router.picker.messages import BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX, GO_ON, NONE, Malformed, Order
from router.picker.pick import Pick
from router.proxy.headers import Headers

WAITED_FOR: Final = frozenset((BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX))
MOST_KEPT: Final = 65_536  # pieces of one body


class Talk:
    """Its story's sink too. `put` takes what goes to Envoy; `late` is called when that came outside of `take`."""

    paused: bool = False
    peer: str = ""

    def __init__(self, house: House, usual: Dialect, late: Callable[[], None]) -> None:
        self._house, self._usual, self._late = house, usual, late
        self.out: list[bytes] = []
        self.story: Pick | None = None
        self.leaving = False  # the process ends, and Envoy goes on without it
        self.closed = False  # the picker answered itself: nothing that Envoy still sends counts
        self._taking = False
        self._modes = FULL_DUPLEX, FULL_DUPLEX
        self._in_body = self._placed = self._trailers = False
        self._heard = self._answered = False  # the request has come to its end; the response has begun
        self._kept: list[tuple[bytes, bool]] = []  # pieces of a body that is not read, until the choice is made
        self._refusal: tuple[int, Headers] | None = None
        self._answer: list[bytes] = []

    @property
    def may_leave(self) -> bool:
        """The picker is needed no more: the response has begun, and its body goes without."""
        return self.story is not None and self.story.status > 0 and self._modes[1] == NONE

    def take(self, message: Any) -> None:
        """A message came from Envoy. Raises Malformed, and then the stream has to end."""
        if self.closed:
            return
        self._taking = True
        try:
            kind = message.WhichOneof("request")
            if kind == "request_headers":
                self._request_headers(message)
            elif kind == "request_body":
                self._request_body(message)
            elif kind == "response_headers":
                self._response_headers(message)
            elif kind == "response_body":
                self._response_body(message)
            elif kind == "request_trailers":
                self._request_trailers()
            elif kind == "response_trailers":
                self._response_trailers()
        finally:
            self._taking = False

    def over(self) -> None:
        """The stream has ended, whoever ended it."""
        self.closed = True
        if self.story is not None:
            self.story.over()

    # From Envoy.

    def _request_headers(self, message: Any) -> None:
        if self.story is not None:
            raise Malformed("a second request on one stream")
        headers, method, path = messages.headers_of(message.request_headers)
        self._modes = messages.modes_of(message)
        mode = self._modes[0]
        self.peer = _client(headers)
        target = path.encode("latin-1")
        place = self._house.paths.get(target.partition(b"?")[0]) if method == "POST" else None
        self._heard = bool(message.request_headers.end_of_stream)
        plain = place is None or not (self._heard or mode in WAITED_FOR)
        story = self.story = Pick(
            self._house, place or Place("other", self._usual), target, headers, self,
            plain=plain, subset=messages.subset_of(message, headers),
        )  # fmt: skip
        story.begin(headers)
        if story.ended:
            return
        if plain or self._heard:
            story.complete()
        elif mode != FULL_DUPLEX:
            self._in_body = True
            self.out.append(GO_ON["request_headers"])

    def _request_body(self, message: Any) -> None:
        body, last = message.request_body.body, message.request_body.end_of_stream
        story = self.story
        if story is None or self._heard:
            raise Malformed("a body before its request's head, or after its end")
        self._heard = last or (not story.plain and self._modes[0] != FULL_DUPLEX)
        if story.plain:
            story.passes(body)
            if not story.ended:
                self._keep(body, last)
            return
        if body:
            story.feed(body)
        if self._heard:
            story.complete()

    def _request_trailers(self) -> None:
        story = self.story
        if story is None or self._trailers:
            raise Malformed("trailers before their request's head, or twice")
        self._trailers = True
        whole, self._heard = self._heard, True
        if self._placed:
            self.out.append(GO_ON["request_trailers"])
        elif not whole and not story.plain:
            story.complete()

    def _response_headers(self, message: Any) -> None:
        if self._answered:
            raise Malformed("a second response on one stream")
        self._answered = True
        story, answer = self.story, messages.answer_of(message)
        added: tuple[tuple[bytes, bytes], ...] = ()
        if story is not None:
            story.head(answer, sees_body=self._modes[1] != NONE)
            story.whole = answer.is_whole
            if story.choice is not None:
                added = tuple(self._house.routed_headers(story.choice))
        self.out.append(messages.passed(added))

    def _response_body(self, message: Any) -> None:
        body, last = message.response_body.body, message.response_body.end_of_stream
        if self.story is not None:
            self.story.read(body)
            self.story.whole = last
        if self._modes[1] == FULL_DUPLEX:
            self.out.extend(messages.pieces("response_body", body, last=last))
        else:
            self.out.append(GO_ON["response_body"])

    def _response_trailers(self) -> None:
        if self.story is not None:
            self.story.whole = True
        self.out.append(GO_ON["response_trailers"])

    # From the story.

    def picked(self, order: Order, body: bytes) -> None:
        """The choice is made; `body` as it goes to the worker."""
        self._placed = True
        self.out.append(messages.picked(order, in_body=self._in_body))
        story = self.story
        assert story is not None
        if self._modes[0] == FULL_DUPLEX and not story.plain:
            self.out.extend(messages.pieces("request_body", body, last=not self._trailers))
        kept, self._kept = self._kept, []
        for each in kept:
            self._keep(*each)
        if self._trailers:
            self.out.append(GO_ON["request_trailers"])
        self.flush()

    def head(self, status: int, headers: Headers, length: int | None) -> None:
        self._refusal = status, headers

    def body(self, data: bytes) -> None:
        self._answer.append(data)

    def end(self) -> None:
        if self._refusal is not None and not self.closed:
            self.closed = True
            self.out.append(messages.refused(*self._refusal, b"".join(self._answer)))
            self.flush()

    def abort(self) -> None:
        """Envoy has the answer, and the picker cannot cut it."""

    def flush(self) -> None:
        if not self._taking:
            self._late()

    def _keep(self, body: bytes, last: bool) -> None:
        """A body that nobody reads here."""
        if not self._placed:
            if len(self._kept) >= MOST_KEPT:
                raise Malformed("a body in too many pieces")
            self._kept.append((body if self._modes[0] == FULL_DUPLEX else b"", last))
        elif self._modes[0] == FULL_DUPLEX:
            self.out.extend(messages.pieces("request_body", body, last=last))
        else:
            self.out.append(GO_ON["request_body"])


def _client(headers: Headers) -> str:
    """Whom Envoy has the request from: it writes that at the end of X-Forwarded-For itself, where it is told to."""
    for name, value in reversed(headers):
        if name == b"x-forwarded-for":
            return value.decode("latin-1").rpartition(",")[2].strip()
    return ""
