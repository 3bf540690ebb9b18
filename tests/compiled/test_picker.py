"""The picker stands on the compiled path of a request, and its streams are picked over a real socket."""

import grpc
import pytest

from router.picker.messages import BUFFERED, FULL_DUPLEX
from tests.router.test_picking import placed, stage
from tests.support.client import HELLO
from tests.support.compiled import IS_COMPILED
from tests.support.talks import EVENTS, request_body, request_head, response_body, response_head

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="`make test-compiled` runs it")


async def test_a_stream_is_picked_and_gives_its_lease_back() -> None:
    async with stage() as on:
        stream = on.stream()
        head, body = await placed(stream)
        put = head.request_headers.response.header_mutation.set_headers
        assert put[0].header.key == "x-gateway-destination-endpoint"
        assert put[0].header.raw_value.startswith(b"127.0.0.1:")
        assert body.request_body.response.body_mutation.streamed_response.body == HELLO
        assert on.in_flight() == 1
        await stream.write(response_head())
        added = (await stream.read()).response_headers.response.header_mutation.set_headers
        assert "x-router-worker" in [each.header.key for each in added]
        await stream.done_writing()
        assert await stream.code() is grpc.StatusCode.OK
        assert on.in_flight() == 0


async def test_an_answer_that_passes_is_read_and_one_of_envoy_s_own_is_blamed() -> None:
    async with stage() as on:
        stream = on.stream()
        await stream.write(request_head(response=FULL_DUPLEX))
        await stream.write(request_body(HELLO))
        await stream.write(response_head(200, EVENTS))
        await stream.write(response_body(b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n', end=True))
        kinds = [(await stream.read()).WhichOneof("response") for _ in range(4)]
        assert kinds == ["request_headers", "request_body", "response_headers", "response_body"]
        await stream.done_writing()
        assert await stream.code() is grpc.StatusCode.OK
        failing = on.stream()
        await placed(failing)
        await failing.write(response_head(503, details="upstream_reset_before_response_started{connection_failure}"))
        await failing.read()
        await failing.done_writing()
        assert await failing.code() is grpc.StatusCode.OK
        assert sum(seat.failed for seat in on.house.fleet.seats.values()) == 1
        assert on.in_flight() == 0


async def test_what_is_refused_without_a_prompt_or_out_of_turn_is_said_so() -> None:
    async with stage() as on:
        refused = on.stream()
        await refused.write(request_head(request=BUFFERED))
        await refused.write(request_body(b"{nope"))
        assert (await refused.read()).WhichOneof("response") == "request_headers"
        assert (await refused.read()).immediate_response.status.code == 400
        plain = on.stream()
        await plain.write(request_head("/v1/models", "GET", end=True))
        assert (await plain.read()).WhichOneof("response") == "request_headers"
        plain.cancel()
        wrong = on.stream()
        await placed(wrong)
        await wrong.write(request_head())
        assert await wrong.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_only_the_workers_of_a_subset_are_chosen() -> None:
    async with stage() as on:
        stream = on.stream()
        await stream.write(request_head(subset=["127.0.0.1:2"]))
        await stream.write(request_body(HELLO))
        told = (await stream.read()).dynamic_metadata["envoy.lb"]["x-gateway-destination-endpoint"]
        assert told == "127.0.0.1:2"
