"""The fast lane's protocol: what it takes itself, what it leaves to the app, and its limits."""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from router.contracts import Place
from router.dialects.anthropic import Anthropic
from router.dialects.openai import OpenAI
from router.errors import Refusal
from router.proxy.fast_sink import FastSink
from router.proxy.protocol import FastLane, lane_for
from router.proxy.sweep import ClientLimits, Sweep
from tests.support.client import CHAT, HELLO, get, post
from tests.support.gateway import eventually


class Story:
    def __init__(self, target: bytes, headers: list[tuple[bytes, bytes]], sink: FastSink) -> None:
        self.target, self.headers, self.sink = target, headers, sink
        self.body = b""
        self.told: list[str] = []

    def feed(self, data: bytes) -> None:
        self.body += data

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.told.append(name)

    def answer(self, data: bytes = b"ok") -> None:
        self.sink.head(200, [], len(data))
        self.sink.body(data)
        self.sink.end()


class Teller:
    def __init__(self) -> None:
        self.paths = {CHAT.encode(): Place(CHAT, OpenAI()), b"/v1/messages": Place("/v1/messages", Anthropic())}
        self.stories: list[Story] = []

    def open(self, place: Place, target: bytes, headers: list[tuple[bytes, bytes]], sink: FastSink) -> Story:
        self.stories.append(Story(target, headers, sink))
        return self.stories[-1]


class Transport:
    def __init__(self) -> None:
        self.written = b""
        self.state = "open"
        self.paused = False
        self.unread = 0  # bytes that the client has not taken
        self.unread = 100_000

    def write(self, data: bytes) -> None:
        assert self.state == "open", "written to after it was closed"
        self.written += data

    def close(self) -> None:
        self.state = "closing"

    def abort(self) -> None:
        self.state = "aborted"

    def is_closing(self) -> bool:
        return self.state != "open"

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return self.unread


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """One connection of a lane."""

    def __init__(self) -> None:
        self.time = Time()
        self.teller = Teller()
        self.refused: list[Refusal] = []
        self.left_to_app: list[str] = []
        self.sweep = Sweep(self.time, 60.0)
        limits = ClientLimits(read_seconds=10.0, write_seconds=20.0, header_bytes=4096)
        made = lane_for(self.teller, limits, self.sweep, lambda refusal, *_: self.refused.append(refusal))  # type: ignore[arg-type]
        config = Config(
            app=self.app, log_config=None, interface="asgi3", ws="none", lifespan="off", timeout_keep_alive=75
        )
        self.state = ServerState()
        self.lane: FastLane = made(config, self.state, {}, _loop=asyncio.get_running_loop())
        self.transport = Transport()
        self.lane.connection_made(self.transport)  # type: ignore[arg-type]

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.left_to_app.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def hears(self, *reads: bytes) -> None:
        for data in reads:
            self.lane.data_received(data)

    @property
    def story(self) -> Story:
        return self.teller.stories[-1]

    def over(self, seconds: float) -> None:
        """Time passes, and the sweep looks."""
        self.time.now += seconds
        if self.lane.lane.deadline <= self.time.now:
            self.lane.lane.overdue(self.time.now)


@pytest.mark.parametrize("size", [1, 3, 50, 10_000])
async def test_however_a_request_is_cut_the_same_story_is_told(desk: Desk, size: int) -> None:
    request = post(headers=[("X-Name", "Value")])
    desk.hears(*[request[at : at + size] for at in range(0, len(request), size)])
    assert (desk.story.target, desk.story.body) == (CHAT.encode(), HELLO)
    assert (b"x-name", b"Value") in desk.story.headers
    assert desk.story.told == ["begin", "complete"]


async def test_the_proxied_posts_are_its_own_and_the_rest_is_the_apps(desk: Desk) -> None:
    desk.hears(post(path=CHAT + "?a=b"))
    assert desk.story.target == (CHAT + "?a=b").encode()
    desk.story.answer()
    for request in (get(CHAT), get("/healthz"), post(path="/elsewhere")):
        desk.hears(request)
        await asyncio.sleep(0.01)
    assert desk.left_to_app == [CHAT, "/healthz", "/elsewhere"]
    desk.hears(post())
    assert len(desk.teller.stories) == 2


async def test_a_pipelined_request_waits_its_turn_in_the_app(desk: Desk) -> None:
    desk.hears(post() + get("/healthz"))
    await asyncio.sleep(0.01)
    assert desk.left_to_app == []
    desk.story.answer()
    await asyncio.sleep(0.01)
    assert desk.left_to_app == ["/healthz"]
    assert desk.transport.written.count(b"HTTP/1.1 200") == 2


async def test_a_client_that_waits_to_be_asked_is_asked_unless_it_was_refused(desk: Desk) -> None:
    request = post(headers=[("Expect", "100-continue")])
    desk.hears(request[: -len(HELLO)])
    assert desk.transport.written == b"HTTP/1.1 100 Continue\r\n\r\n"
    desk.hears(HELLO)
    assert desk.story.body == HELLO


async def test_the_time_for_a_request_runs_from_its_last_piece(desk: Desk) -> None:
    desk.hears(post(b"ab", length=4))
    desk.over(9.0)
    desk.hears(b"c")
    desk.over(9.0)
    assert "late" not in desk.story.told
    desk.over(1.0)
    assert desk.story.told[-1] == "late"


async def test_the_time_for_the_headers_runs_from_their_first_byte(desk: Desk) -> None:
    desk.hears(b"POST / HTTP/1.1\r\n")
    for _ in range(3):
        desk.over(3.0)
        desk.hears(b"X-A: b\r\n")
    assert desk.refused == []
    desk.over(1.0)
    assert [refusal.status for refusal in desk.refused] == [408]
    assert desk.transport.written.startswith(b"HTTP/1.1 408")


async def test_an_answer_has_all_the_time_it_needs_and_then_the_connection_idles(desk: Desk) -> None:
    desk.hears(post())
    assert desk.lane.lane.deadline == inf
    desk.over(10_000.0)
    desk.story.answer()
    desk.over(74.0)
    assert desk.transport.state == "open"
    desk.over(1.0)
    assert desk.transport.state == "closing"


async def test_a_connection_that_never_asks_is_closed(desk: Desk) -> None:
    desk.over(10.0)
    assert (desk.transport.state, desk.transport.written) == ("closing", b"")


async def test_one_that_does_not_read_is_cut_and_its_worker_waits_meanwhile(desk: Desk) -> None:
    desk.hears(post())
    desk.lane.pause_writing()
    assert desk.story.told[-1] == "pause"
    desk.over(19.0)
    desk.lane.resume_writing()
    assert desk.story.told[-1] == "resume"
    desk.over(100.0)
    assert desk.transport.state == "open"
    desk.lane.pause_writing()
    desk.over(20.0)
    assert desk.transport.state == "aborted"


async def test_one_that_reads_slowly_is_not_cut(desk: Desk) -> None:
    desk.hears(post())
    desk.transport.unread = 100_000
    desk.lane.pause_writing()
    for unread in (99_000, 98_000):
        desk.transport.unread = unread
        desk.over(20.0)
        assert desk.transport.state == "open"
    desk.over(20.0)
    assert desk.transport.state == "aborted"


async def test_asking_for_more_is_not_reading(desk: Desk) -> None:
    desk.hears(post())
    desk.lane.pause_writing()
    desk.over(15.0)
    desk.hears(post())
    desk.over(5.0)
    assert desk.transport.state == "aborted"


async def test_one_that_leaves_a_finished_answer_unread_is_cut_too(desk: Desk) -> None:
    desk.hears(post())
    desk.lane.pause_writing()
    desk.story.answer()
    desk.over(20.0)
    assert desk.transport.state == "aborted"


async def test_closing_does_not_wait_for_ever(desk: Desk) -> None:
    desk.hears(post(headers=[("Connection", "close")]))
    desk.story.answer()
    assert desk.transport.state == "closing"
    desk.over(20.0)
    assert desk.transport.state == "aborted"


@pytest.mark.parametrize(
    ("path", "form"), [(CHAT, b'{"error":'), ("/v1/messages", b'{"type":"error"'), ("/x", b'{"error":')]
)
async def test_a_bad_head_is_refused_in_the_form_of_its_path(desk: Desk, path: str, form: bytes) -> None:
    desk.hears(post(path=path, headers=[("Content-Length", "1"), ("Content-Length", "2")]))
    assert form in desk.transport.written
    assert desk.transport.state == "closing"
    assert [refusal.status for refusal in desk.refused] == [400]


async def test_headers_have_a_limit_and_bodies_do_not_count(desk: Desk) -> None:
    desk.hears(post(b"x" * 10_000))
    desk.story.answer()
    desk.hears(post(headers=[("X-A", "a" * 3000)]))
    desk.story.answer()
    desk.hears(post(headers=[("X-A", "a" * 5000)]))
    assert [refusal.status for refusal in desk.refused] == [431]
    assert len(desk.teller.stories) == 2


async def test_rubbish_behind_a_request_ends_it_without_a_word(desk: Desk) -> None:
    desk.hears(post())
    before = desk.transport.written
    desk.hears(b"\x00\x00rubbish\r\n\r\n")
    assert desk.story.told[-1] == "cancel"
    assert (desk.transport.written, desk.transport.state) == (before, "aborted")


async def test_a_client_that_leaves_cancels_its_story_and_is_watched_no_more(desk: Desk) -> None:
    desk.hears(post())
    desk.lane.connection_lost(None)
    assert desk.story.told[-1] == "cancel"
    assert len(desk.sweep) == 0
    assert desk.state.connections == set()


async def test_an_offer_of_another_protocol_is_ignored(desk: Desk) -> None:
    desk.hears(post(headers=[("Connection", "Upgrade"), ("Upgrade", "h2c")]))
    assert desk.story.body == HELLO
    assert not [name for name, _ in desk.story.headers if name == b"upgrade"]
    assert desk.story.told == ["begin", "complete"]


async def test_many_offers_in_one_read_are_all_ignored_one_after_the_other(desk: Desk) -> None:
    """Each is read anew: as deep as there are offers would be too deep."""
    offer = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    desk.hears(offer * 3000 + b"GET /healthz HTTP/1.1\r\nHo")
    await eventually(lambda: len(desk.left_to_app) == 3000, within=60.0)
    assert desk.refused == []


async def test_who_was_refused_and_sends_on_what_is_no_http_is_told_once(desk: Desk) -> None:
    desk.hears(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
    sink = desk.lane.lane.sink
    assert sink is not None
    sink.head(401, [], 0)
    sink.end()
    desk.hears(b"-1\r\n\r\n")
    assert desk.transport.written.count(b"HTTP/1.1 ") == 1
    assert desk.transport.state == "closing"
    assert desk.refused == []


async def test_a_client_of_the_old_version_is_not_asked_to_go_on(desk: Desk) -> None:
    desk.hears(b"POST /v1/chat/completions HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert desk.transport.written == b""


async def test_a_connection_tells_whether_it_has_begun_to_ask(desk: Desk) -> None:
    """At a stop it is heard; and it makes no room for others."""
    desk.hears(post())
    assert not desk.lane.in_message
    desk.hears(post()[:20])
    assert desk.lane.in_message
