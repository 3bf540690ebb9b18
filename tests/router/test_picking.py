"""The picker's server, asked by another's gRPC client: health, streams, faults, and its end."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from hpack import Encoder

from router.core.health import DOWN
from router.layers import load
from router.picker import messages
from router.picking import CHECK, EXT_PROC, PROCESS, PickerServer, serve_picks
from router.reload import SettingsSource
from router.rpc import frames
from router.server import uvicorn_config
from router.wiring import Gateway
from tests.support.client import HELLO
from tests.support.fleets import ready
from tests.support.gateway import eventually
from tests.support.talks import request_body, request_head, response_head

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
MOST_SENT = 64 << 20  # bytes; what the sockets' own buffers take is less


class Stage:
    def __init__(
        self, server: PickerServer, gateway: Gateway, channel: Any, task: asyncio.Task[None], port: int
    ) -> None:
        self.server, self.gateway, self.channel, self.task, self.port = server, gateway, channel, task, port
        self.house = gateway.house

    def stream(self) -> Any:
        return self.channel.stream_stream(PROCESS, ProcessingRequest.SerializeToString, ProcessingResponse.FromString)()

    async def check(self, service: bytes = b"") -> bytes:
        request = b"\x0a" + bytes((len(service),)) + service if service else b""
        found: bytes = await self.channel.unary_unary(CHECK)(request)
        return found

    def in_flight(self) -> int:
        return sum(seat.load.in_flight for seat in self.house.fleet.seats.values())


@asynccontextmanager
async def stage(*, well: bool = True, **settings: Any) -> AsyncIterator[Stage]:
    """A server in this loop, with two workers that are ready and that nobody asks."""
    given = {
        "workers": ["http://127.0.0.1:1", "http://127.0.0.1:2"], "log": {"access": "none"},
        "health": {"interval_seconds": 3600}, "shutdown": {"grace_seconds": 0, "drain_seconds": 1},
        "picker": {"port": 0, **settings.pop("picker", {})}, **settings,
    }  # fmt: skip
    made, origins = load([("test", given)], {})
    gateway = Gateway(made, origins)
    ports: list[int] = []
    server = PickerServer(uvicorn_config(gateway, fast=True), gateway, ports.append)
    task = asyncio.create_task(server.serve(sockets=[]))
    await eventually(lambda: ports or task.done())
    if well:
        await eventually(lambda: len(gateway.fleet.seats) == 2)
        ready(gateway.fleet)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
        try:
            yield Stage(server, gateway, channel, task, ports[0])
        finally:
            if not server.ending:
                server.handle_exit(signal.SIGTERM, None)
            await asyncio.wait_for(task, 20)


async def placed(stream: Any) -> list[Any]:
    await stream.write(request_head())
    await stream.write(request_body(HELLO))
    return [await stream.read(), await stream.read()]


async def by_hand(on: Stage, *narrow: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection without a client's care, with one request on it; `narrow`: settings that are 0."""
    reader, writer = await asyncio.open_connection("127.0.0.1", on.port)
    block = Encoder().encode([(":method", "POST"), (":scheme", "http"), (":path", PROCESS), (":authority", "x")])
    writer.write(frames.PREFACE + frames.settings(dict.fromkeys(narrow, 0)))
    writer.write(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block))
    for message in (request_head(), request_body(HELLO)):
        writer.write(frames.frame(frames.DATA, 0, 1, frames.message(message.SerializeToString())))
    await writer.drain()
    return reader, writer


async def test_a_request_is_placed_and_its_lease_lasts_as_long_as_the_stream() -> None:
    async with stage() as on:
        stream = on.stream()
        head, body = await placed(stream)
        assert (
            head.request_headers.response.header_mutation.set_headers[0].header.key == "x-gateway-destination-endpoint"
        )
        assert body.request_body.response.body_mutation.streamed_response.body == HELLO
        assert on.in_flight() == 1
        await stream.write(response_head())
        assert (await stream.read()).WhichOneof("response") == "response_headers"
        await stream.done_writing()
        assert await stream.code() is grpc.StatusCode.OK
        assert on.in_flight() == 0


async def test_a_stream_that_is_cancelled_and_a_client_that_is_gone_give_their_leases_back() -> None:
    async with stage() as on:
        cancelled, left = on.stream(), on.stream()
        await placed(cancelled)
        await placed(left)
        assert on.in_flight() == 2
        cancelled.cancel()
        await eventually(lambda: on.in_flight() == 1)
        await on.channel.close()
        await eventually(lambda: on.in_flight() == 0)


async def test_a_refusal_ends_its_stream() -> None:
    async with stage() as on:
        stream = on.stream()
        await stream.write(request_head())
        await stream.write(request_body(b"{nope"))
        assert (await stream.read()).immediate_response.status.code == 400
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK


async def test_a_message_that_is_none_ends_its_stream_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with stage() as on:
        well = on.stream()
        await placed(well)
        bad = on.channel.stream_stream(PROCESS)()
        await bad.write(b"\xff\xff\xff")
        assert await bad.code() is grpc.StatusCode.INVALID_ARGUMENT
        await well.write(response_head())
        assert (await well.read()).WhichOneof("response") == "response_headers"
        assert "bytes that are no message" in caplog.text


async def test_what_comes_out_of_turn_or_is_malformed_is_refused_without_filling_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with stage() as on:
        caplog.clear()
        heads = [request_head("/a", "POST", header) for header in (("", "x"), ("content-length", "abc"))]
        for message in (request_body(), *heads):
            stream = on.stream()
            await stream.write(message)
            assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
        for message in (request_head(), request_body(HELLO), response_head("abc")):  # type: ignore[arg-type]
            stream = on.stream()
            await placed(stream)
            await stream.write(message)
            assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
            await eventually(lambda: on.in_flight() == 0)
        told = [record for record in caplog.records if "picker" in record.message]
        assert len(told) == 1
        assert not told[0].exc_info


async def test_a_fault_of_ours_ends_its_stream_and_gives_its_lease_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage() as on:
        stream = on.stream()
        await placed(stream)

        def fails(_: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(messages, "answer_of", fails)
        await stream.write(response_head())
        assert await stream.code() is grpc.StatusCode.INTERNAL
        assert "a fault in the picker" in caplog.text
        await eventually(lambda: on.in_flight() == 0)


async def test_a_peer_that_takes_nothing_keeps_no_lease_after_a_fault_of_its_own() -> None:
    async with stage() as on:
        _, writer = await by_hand(on, frames.INITIAL_WINDOW)
        await eventually(lambda: on.in_flight() == 1)
        writer.write(frames.frame(frames.DATA, 0, 1, frames.message(b"\xff\xff")))
        await eventually(lambda: on.in_flight() == 0)
        writer.close()


async def test_a_peer_that_does_not_read_is_not_read_from_for_ever() -> None:
    async with stage() as on:
        _, writer = await by_hand(on)
        pings = frames.frame(frames.PING, 0, 0, b"12345678") * 40_000
        sent = 0
        while sent < MOST_SENT:
            writer.write(pings)
            sent += len(pings)
            try:
                await asyncio.wait_for(writer.drain(), 2)
            except TimeoutError:
                break
        assert sent < MOST_SENT
        assert await on.check(EXT_PROC) == SERVING
        writer.transport.abort()


async def test_a_large_body_goes_there_and_back() -> None:
    body = b'{"model": "m", "prompt": "%s"}' % (b"x" * 3_000_000)
    async with stage() as on:
        stream = on.stream()
        await stream.write(request_head("/v1/completions"))
        for at in range(0, len(body), 60_000):
            await stream.write(request_body(body[at : at + 60_000], end=at + 60_000 >= len(body)))
        assert (await stream.read()).HasField("request_headers")
        back, last = b"", False
        while not last:
            piece = (await stream.read()).request_body.response.body_mutation.streamed_response
            back, last = back + piece.body, piece.end_of_stream
        assert back == body


async def test_the_health_service_tells_alive_from_serving_and_from_ready() -> None:
    async with stage(well=False) as on:
        assert await on.check(b"liveness") == await on.check(EXT_PROC) == SERVING
        assert await on.check() == await on.check(b"readiness") == NOT_SERVING
        ready(on.gateway.fleet)
        assert await on.check() == await on.check(b"readiness") == SERVING
        on.house.draining = True
        assert await on.check() == await on.check(EXT_PROC) == NOT_SERVING
        assert await on.check(b"liveness") == SERVING
        on.house.draining = False
    async with stage(well=False, picker={"fail_open": True}) as on:
        assert await on.check() == SERVING


async def test_a_worker_that_fails_while_others_do_well_is_left_out() -> None:
    async with stage() as on:
        bad, good = on.house.fleet.seats.values()
        bad.failed, good.answered = 20, 20
        await eventually(lambda: bad.health.state is DOWN)
        assert good.health.state is not DOWN


async def test_another_method_is_unknown() -> None:
    async with stage() as on:
        with pytest.raises(grpc.aio.AioRpcError) as wrong:
            await on.channel.unary_unary("/a.Service/Method")(b"")
        assert wrong.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_at_its_end_those_that_only_wait_are_let_go_and_the_others_finish() -> None:
    async with stage() as on:
        waiting, open_ = on.stream(), on.stream()
        await placed(waiting)
        await waiting.write(response_head())
        await waiting.read()
        await placed(open_)
        on.server.handle_exit(signal.SIGTERM, None)
        assert await waiting.read() is grpc.aio.EOF
        assert await waiting.code() is grpc.StatusCode.OK
        await open_.write(response_head())
        assert (await open_.read()).WhichOneof("response") == "response_headers"
        assert await open_.code() is grpc.StatusCode.OK


async def test_at_its_end_none_outlasts_the_time_for_it() -> None:
    async with stage(shutdown={"grace_seconds": 0, "drain_seconds": 0.2}) as on:
        stream = on.stream()
        await placed(stream)
        on.server.handle_exit(signal.SIGTERM, None)
        assert await stream.code() is grpc.StatusCode.OK
        await eventually(lambda: on.in_flight() == 0)


@pytest.mark.parametrize("twice", [False, True])
async def test_at_its_end_a_peer_that_takes_nothing_cannot_keep_it(twice: bool) -> None:
    seconds = 3600 if twice else 0.2
    async with stage(shutdown={"grace_seconds": 0, "drain_seconds": seconds}) as on:
        _, writer = await by_hand(on, frames.INITIAL_WINDOW)
        await eventually(lambda: on.in_flight() == 1)
        on.server.handle_exit(signal.SIGTERM, None)
        if twice:
            on.server.handle_exit(signal.SIGTERM, None)
        await asyncio.wait_for(on.task, 30)
        assert on.in_flight() == 0
        writer.close()


@pytest.mark.parametrize("name", ["port", "http_port"])
def test_a_port_that_is_taken_is_said_so(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        loaded = load([("test", {"picker": {"port": 0, name: port}, "log": {"access": "none"}})], {})
        assert serve_picks(loaded, SettingsSource(lambda: loaded)) == 1
        assert str(port) in capfd.readouterr().err
