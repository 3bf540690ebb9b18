"""The same journey behind plain ASGI."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from router.proxy.asgi import HIGH_WATER, AsgiEndpoint, AsgiSink
from router.proxy.sweep import ClientLimits
from tests.support.gateway import eventually


class Told:
    """A story that writes down how it is driven, and answers when it is told to."""

    def __init__(self, sink: AsgiSink) -> None:
        self.sink = sink
        self.told: list[str] = []
        self.data = b""

    def begin(self, headers: list[tuple[bytes, bytes]]) -> None:
        self.told.append("begin")

    def feed(self, data: bytes) -> None:
        self.data += data

    def complete(self) -> None:
        self.told.append("complete")

    def late(self) -> None:
        self.told.append("late")
        self.sink.end()

    def cancel(self) -> None:
        self.told.append("cancel")

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")


class Server:
    """The server's side of one request."""

    def __init__(self, read_seconds: float = 5.0, **scope: Any) -> None:
        self.scope = {"path": "/v1/x", "query_string": b"", "headers": [(b"X-Name", b"Value")], **scope}
        self.came: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.opened: list[Any] = []
        self.endpoint = AsgiEndpoint(self, ("place", None), ClientLimits(read_seconds, 20.0, 4096))  # type: ignore[arg-type]

    def open(self, place: Any, target: bytes, headers: list[tuple[bytes, bytes]], sink: AsgiSink) -> Told:
        self.story = Told(sink)
        self.opened = [target, headers]
        return self.story

    async def send(self, message: Any) -> None:
        await self.may_send.wait()
        self.sent.append(dict(message))

    def request(self, body: bytes, more: bool = False) -> None:
        self.came.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self) -> None:
        self.came.put_nowait({"type": "http.disconnect"})

    async def run(self) -> None:
        self.task = asyncio.create_task(self.endpoint(self.scope, self.came.get, self.send))
        await eventually(lambda: self.opened)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.run()
    yield server
    server.task.cancel()
    await asyncio.gather(server.task, return_exceptions=True)


async def test_a_request_is_fed_and_completed_and_its_answer_sent(server: Server) -> None:
    server.request(b"one ", more=True)
    server.request(b"two")
    await eventually(lambda: "complete" in server.story.told)
    assert server.story.data == b"one two"
    sink = server.story.sink
    sink.head(200, [(b"a", b"b")], 5)
    sink.body(b"hel")
    sink.flush()
    await eventually(lambda: len(server.sent) == 2)
    sink.body(b"lo")
    sink.end()
    await server.task
    assert server.sent[0] == {
        "type": "http.response.start", "status": 200, "headers": [(b"a", b"b"), (b"content-length", b"5")],
    }  # fmt: skip
    assert [(message["body"], message["more_body"]) for message in server.sent[1:]] == [
        (b"hel", True), (b"lo", True), (b"", False),
    ]  # fmt: skip


async def test_the_target_is_the_raw_one_and_names_are_lower_case() -> None:
    for scope, target in (
        ({"raw_path": b"/v1/%78", "query_string": b"a=%20"}, b"/v1/%78?a=%20"), ({"raw_path": None}, b"/v1/x"),
    ):  # fmt: skip
        server = Server(**scope)
        await server.run()
        assert server.opened == [target, [(b"x-name", b"Value")]]
        server.leave()
        await server.task


@pytest.mark.parametrize("whole", [True, False])
async def test_a_client_that_leaves_cancels_its_story(server: Server, whole: bool) -> None:
    server.request(b"x", more=not whole)
    server.leave()
    await server.task
    assert "cancel" in server.story.told
    assert ("complete" in server.story.told) is whole
    assert server.sent == []


async def test_a_body_that_does_not_come_is_told() -> None:
    server = Server(read_seconds=0.05)
    await server.run()
    server.request(b"x", more=True)
    await server.task
    assert "late" in server.story.told


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_declares_no_length(server: Server, status: int) -> None:
    server.story.sink.head(status, [], 0)
    server.story.sink.end()
    await server.task
    assert server.sent[0]["headers"] == []


async def test_what_a_slow_client_leaves_here_is_bounded(server: Server) -> None:
    server.request(b"x")
    server.may_send.clear()
    sink = server.story.sink
    sink.head(200, [], None)
    sink.flush()
    while "pause" not in server.story.told:
        sink.body(b"x" * 1000)
        assert sink._size <= HIGH_WATER + 1000
    sink.body(b"x" * 1000)
    assert server.story.told.count("pause") == 1
    assert "resume" not in server.story.told
    server.may_send.set()
    await eventually(lambda: "resume" in server.story.told)
    sink.end()
    await server.task


async def test_a_cut_sends_what_came_and_no_end(server: Server) -> None:
    server.request(b"x")
    sink = server.story.sink
    sink.head(200, [], None)
    sink.body(b"half")
    sink.abort()
    sink.body(b"late")
    await server.task
    assert [message.get("body") for message in server.sent] == [None, b"half"]
    assert all(message.get("more_body", True) for message in server.sent)


async def test_a_server_that_gives_up_cancels_the_story(server: Server) -> None:
    server.request(b"x")
    await eventually(lambda: "complete" in server.story.told)
    server.task.cancel()
    await asyncio.gather(server.task, return_exceptions=True)
    assert "cancel" in server.story.told
