"""Streams of Envoy's without Envoy: its messages made by hand, and what the picker answers read again."""

from __future__ import annotations

from typing import Any

from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse

from router.core.fleet import Seat
from router.picker.messages import ATTRIBUTES, BUFFERED, ENDPOINT, FULL_DUPLEX, NONE, PICKED_IN, SUBSET, SUBSET_IN
from router.picker.talk import Talk
from tests.support.client import CHAT, HELLO
from tests.support.stories import Desk

JSON = (("content-type", "application/json"),)
EVENTS = (("content-type", "text/event-stream"),)


class Place:
    """A pool that is never sent anything."""

    name = None
    base_path = b""

    def __init__(self, seat: Seat, keys: bytes = b"") -> None:
        self.greeting = b" HTTP/1.1\r\nhost: %s\r\n%s" % (seat.id.encode(), keys)
        self.has_credentials = bool(keys)


def request_head(
    path: str = CHAT, method: str = "POST", *more: tuple[str, str], end: bool = False,
    request: int | None = FULL_DUPLEX, response: int = NONE, subset: list[str] | None = None,
) -> Any:  # fmt: skip
    message = ProcessingRequest()
    for name, value in ((":method", method), (":path", path), *more):
        message.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    message.request_headers.end_of_stream = end
    if request is not None:
        message.protocol_config.request_body_mode = request
        message.protocol_config.response_body_mode = response
    if subset is not None:
        message.metadata_context.filter_metadata[SUBSET_IN].update({SUBSET: subset})
    return message


def request_body(data: bytes = HELLO, *, end: bool = True) -> Any:
    message = ProcessingRequest()
    message.request_body.body, message.request_body.end_of_stream = data, end
    return message


def response_head(
    status: int = 200, headers: Any = JSON, *, end: bool = False, served: str = "", details: str = ""
) -> Any:
    message = ProcessingRequest()
    for name, value in ((":status", str(status)), *headers):
        message.response_headers.headers.headers.add(key=name, raw_value=value.encode())
    message.response_headers.end_of_stream = end
    if served or details:
        told = {"upstream.address": served, "response.code_details": details}
        message.attributes[ATTRIBUTES].update({name: value for name, value in told.items() if value})
    return message


def response_body(data: bytes, *, end: bool = False) -> Any:
    message = ProcessingRequest()
    message.response_body.body, message.response_body.end_of_stream = data, end
    return message


def trailers(kind: str) -> Any:
    message = ProcessingRequest()
    getattr(message, kind).SetInParent()
    return message


class Counter(Desk):
    """A desk whose journeys are told by Envoy. Workers are `w0:8000` and so on, as Envoy is told of them."""

    def __init__(self, workers: int = 2, **given: Any) -> None:
        super().__init__(workers, **given)
        self.places: dict[str, Place] = {}
        self.house.pool = lambda seat: self.places.setdefault(seat.id, Place(seat))  # type: ignore[method-assign, assignment, return-value]
        self.usual = next(iter(self.house.paths.values())).dialect

    def talk(self) -> Heard:
        return Heard(self)

    def picked(self, body: bytes = HELLO, **given: Any) -> Heard:
        """A stream whose request has been given its worker."""
        heard = self.talk()
        heard.hear(request_head(request=BUFFERED, **given), request_body(body))
        return heard


class Heard:
    """One stream; `answers` is all that the picker said."""

    def __init__(self, counter: Counter) -> None:
        self.late = 0
        self.answers: list[Any] = []
        self.talk = Talk(counter.house, counter.usual, self._late)

    def _late(self) -> None:
        self.late += 1
        self._drain()

    def _drain(self) -> None:
        out, self.talk.out = self.talk.out, []
        self.answers += [ProcessingResponse.FromString(each) for each in out]

    def hear(self, *messages: Any) -> Heard:
        for message in messages:
            self.talk.take(message)
            self._drain()
        return self

    @property
    def kinds(self) -> list[str]:
        return [str(answer.WhichOneof("response")) for answer in self.answers]

    @property
    def change(self) -> dict[str, str]:
        """The headers that are set by the answer that places the request."""
        [common] = [
            part.response
            for answer in self.answers
            for part in (answer.request_headers, answer.request_body)
            if part.response.clear_route_cache
        ]
        return {each.header.key: each.header.raw_value.decode() for each in common.header_mutation.set_headers}

    @property
    def endpoints(self) -> str:
        found = self.change.get(ENDPOINT, "")
        [told] = [answer.dynamic_metadata for answer in self.answers if answer.HasField("dynamic_metadata")] or [None]
        assert (told[PICKED_IN][ENDPOINT] if told is not None else "") == found
        return found

    @property
    def body(self) -> bytes:
        """The request's body, as it was passed back."""
        return b"".join(
            answer.request_body.response.body_mutation.streamed_response.body
            for answer in self.answers
            if answer.WhichOneof("response") == "request_body"
        )

    @property
    def refusal(self) -> Any:
        return self.answers[-1].immediate_response
