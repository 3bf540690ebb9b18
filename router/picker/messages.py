"""What Envoy's ext_proc filter and the picker tell each other, as protobuf: nothing is decided here.

Answers that are alike are made once. The protocol on top is the endpoint-picker protocol of the Gateway API Inference
Extension (its proposal 004): the endpoint goes out both as a header and as dynamic metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from google.protobuf.message import DecodeError

from router.proxy.headers import Headers

ENDPOINT = "x-gateway-destination-endpoint"
SUBSET = "x-gateway-destination-endpoint-subset"
PICKED_IN, SUBSET_IN = "envoy.lb", "envoy.lb.subset_hint"  # namespaces of metadata
ATTRIBUTES = "envoy.filters.http.ext_proc"
NONE, STREAMED, BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX = range(5)  # body modes, as Envoy numbers them
MOST_PIECE = 62_000  # bytes of a body in one message: Envoy takes no chunk larger than 64 KiB back
OVERWRITE = 2  # HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD

WHOLE = re.compile(rb"[0-9]{1,18}")
STATUS = re.compile(rb"[1-9][0-9]{2}")


class Malformed(Exception):
    """What no Envoy says, or not now: the stream ends."""


def read_message(data: bytes) -> Any:
    """Raises Malformed."""
    try:
        return ProcessingRequest.FromString(data)
    except DecodeError:
        raise Malformed("bytes that are no message") from None


class Order(NamedTuple):
    """What is to be done with a request.

    endpoints: the worker's, further ones after commas; empty: Envoy's own choice
    body: the new one, None where it stays as it is
    """

    endpoints: str = ""
    put: tuple[tuple[str, bytes], ...] = ()
    drop: tuple[str, ...] = ()
    body: bytes | None = None


class Answer(NamedTuple):
    """A response's head. `served`: the address that Envoy has it from; `details`: how it came about, `via_upstream`
    where the worker said so itself. Both are empty where Envoy is not told to send these attributes."""

    status: int
    headers: Headers
    served: str
    details: str
    is_whole: bool


def modes_of(message: Any) -> tuple[int, int]:
    """How bodies come, the request's and the response's. Envoy says so in a stream's first message; one too old to say
    cannot know the full-duplex mode of any other picker either."""
    if not message.HasField("protocol_config"):
        return FULL_DUPLEX, FULL_DUPLEX
    config = message.protocol_config
    return config.request_body_mode, config.response_body_mode


def headers_of(message: Any) -> tuple[Headers, str, str]:
    """A request's headers, its method and its path with the query. Raises Malformed."""
    headers: Headers = []
    method = path = ""
    for header in message.headers.headers:
        name, value = header.key, header.raw_value or header.value.encode()
        if not name or (name == "content-length" and not WHOLE.fullmatch(value)):
            raise Malformed("a header that HTTP knows not")
        if name[0] != ":":
            headers.append((name.encode(), value))
        elif name == ":path":
            path = value.decode("latin-1")
        elif name == ":method":
            method = value.decode("latin-1")
    return headers, method, path


def answer_of(message: Any) -> Answer:
    """The head of a response. Raises Malformed."""
    status, headers = 0, []
    head = message.response_headers
    for header in head.headers.headers:
        name, value = header.key, header.raw_value or header.value.encode()
        if name[:1] != ":":
            headers.append((name.encode(), value))
        elif name == ":status" and STATUS.fullmatch(value):
            status = int(value)
    if not status:
        raise Malformed("a response without a status")
    served = details = ""
    if message.attributes:
        fields = message.attributes[ATTRIBUTES].fields
        served, details = fields["upstream.address"].string_value, fields["response.code_details"].string_value
    return Answer(status, headers, served, details, head.end_of_stream)


def subset_of(message: Any, headers: Headers) -> frozenset[str] | None:
    """The endpoints that may be chosen, None for all. Metadata counts before a header."""
    spaces = message.metadata_context.filter_metadata
    if SUBSET_IN in spaces and SUBSET in spaces[SUBSET_IN].fields:
        value = spaces[SUBSET_IN].fields[SUBSET]
        if value.WhichOneof("kind") == "list_value":
            return frozenset(each.string_value.strip() for each in value.list_value.values)
        return _listed(value.string_value)
    named = [value.decode("latin-1") for name, value in headers if name == SUBSET.encode()]
    return _listed(",".join(named)) if named else None


def _listed(text: str) -> frozenset[str]:
    return frozenset(each.strip() for each in text.split(",") if each.strip())


# Answers.


def picked(order: Order, *, in_body: bool) -> bytes:
    """Where the request goes: the answer to its head, or, of a body that Envoy keeps itself, to its body."""
    if order.put or order.drop or order.body is not None:
        return _picked(order, in_body=in_body)
    return _usual(order.endpoints, in_body=in_body)


@lru_cache(4096)
def _usual(endpoints: str, *, in_body: bool) -> bytes:
    return _picked(Order(endpoints), in_body=in_body)


def _picked(order: Order, *, in_body: bool) -> bytes:
    answer = ProcessingResponse()
    common = (answer.request_body if in_body else answer.request_headers).response
    common.clear_route_cache = True  # the route may depend on the header
    change = common.header_mutation
    if order.endpoints:
        _put(change, ENDPOINT, order.endpoints.encode())
        answer.dynamic_metadata[PICKED_IN] = {ENDPOINT: order.endpoints}
    else:
        change.remove_headers.append(ENDPOINT)
    for name, value in order.put:
        _put(change, name, value)
    change.remove_headers.extend(order.drop)
    if in_body and order.body is not None:
        common.body_mutation.body = order.body
        _put(change, "content-length", b"%d" % len(order.body))  # Envoy compares the two, and refuses what differs
    return bytes(answer.SerializeToString())


def refused(status: int, headers: Headers, body: bytes) -> bytes:
    """An answer of the picker's own, in place of a worker's."""
    answer = ProcessingResponse()
    immediate = answer.immediate_response
    immediate.status.code = status
    immediate.body = body
    for name, value in headers:
        _put(immediate.headers, name.decode("latin-1"), value)
    return bytes(answer.SerializeToString())


@lru_cache(4096)
def passed(added: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """A response's head goes on, with these headers."""
    answer = ProcessingResponse()
    answer.response_headers.SetInParent()
    for name, value in added:
        _put(answer.response_headers.response.header_mutation, name.decode("latin-1"), value)
    return bytes(answer.SerializeToString())


def pieces(kind: str, body: bytes, *, last: bool) -> Iterable[bytes]:
    """A body that is passed back, `kind` request_body or response_body, in messages that Envoy takes."""
    for at in range(0, len(body) or 1, MOST_PIECE):
        answer = ProcessingResponse()
        piece = getattr(answer, kind).response.body_mutation.streamed_response
        piece.body = body[at : at + MOST_PIECE]
        piece.end_of_stream = last and at + MOST_PIECE >= len(body)
        yield answer.SerializeToString()


def _nothing(kind: str) -> bytes:
    answer = ProcessingResponse()
    getattr(answer, kind).SetInParent()
    return bytes(answer.SerializeToString())


def _put(change: Any, name: str, value: bytes) -> None:
    option = change.set_headers.add()
    option.header.key = name
    option.header.raw_value = value
    option.append_action = OVERWRITE


GO_ON = {
    kind: _nothing(kind)
    for kind in ("request_headers", "request_body", "request_trailers", "response_headers", "response_body",
                 "response_trailers")
}  # fmt: skip
