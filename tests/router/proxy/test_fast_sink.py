"""An answer's framing in the fast lane, byte for byte."""

from typing import Any

import pytest

from router.proxy.fast_sink import FastSink
from router.proxy.pen import Pen


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> Any:
        """A socket without a descriptor: all is written here."""
        return self if name == "socket" else None

    def setsockopt(self, *option: Any) -> None:
        self.written.append(b"<reset on close>")


class Lane:
    write_paused = False

    def __init__(self) -> None:
        self.transport = Transport()
        self.pen = Pen(self.transport)  # type: ignore[arg-type]
        self.told: list[str] = []

    def peer(self) -> str:
        return "192.0.2.1"

    def linger(self) -> None:
        self.told.append("linger")

    def answered(self) -> None:
        self.told.append("complete")


class Told:
    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.told.append(name)


def sink_of(*, old: bool = False, keep_alive: bool = True, whole: bool = True) -> tuple[FastSink, Lane, Told]:
    lane, story = Lane(), Told()
    sink = FastSink(lane, old=old, keep_alive=keep_alive and not old)  # type: ignore[arg-type]
    sink.begin(story, [])  # type: ignore[arg-type]
    if whole:
        sink.received()
    return sink, lane, story


def written(lane: Lane) -> bytes:
    return b"".join(lane.transport.written)


def test_a_length_is_declared_where_there_is_one() -> None:
    sink, lane, _ = sink_of()
    sink.head(200, [(b"a", b"b")], 5)
    sink.body(b"hello")
    sink.end()
    assert lane.transport.written == [b"HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 5\r\n\r\nhello"]
    assert lane.told == ["complete"]
    assert not lane.transport.closed


def test_pieces_are_chunks_where_there_is_none() -> None:
    sink, lane, _ = sink_of()
    sink.head(200, [], None)
    sink.body(b"x" * 17)
    sink.flush()
    sink.body(b"y")
    sink.end()
    assert lane.transport.written == [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n11\r\n" + b"x" * 17 + b"\r\n",
        b"1\r\ny\r\n0\r\n\r\n",
    ]


def test_what_one_read_brought_is_one_write() -> None:
    sink, lane, _ = sink_of()
    sink.head(200, [], None)
    for _ in range(20):
        sink.body(b"z")
    sink.flush()
    sink.flush()
    assert len(lane.transport.written) == 1


def test_an_old_client_gets_bytes_until_the_connection_ends() -> None:
    sink, lane, _ = sink_of(old=True)
    sink.head(200, [], None)
    sink.body(b"x")
    sink.end()
    assert written(lane) == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nx"
    assert lane.transport.closed


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_has_no_framing(status: int) -> None:
    sink, lane, _ = sink_of()
    sink.head(status, [], None)
    sink.end()
    assert written(lane).split(b"\r\n", 1)[1] == b"\r\n"


def test_a_status_nobody_named_passes() -> None:
    sink, lane, _ = sink_of()
    sink.head(799, [], 0)
    sink.end()
    assert written(lane).startswith(b"HTTP/1.1 799 \r\n")


def test_a_client_that_hangs_up_is_told_so() -> None:
    sink, lane, _ = sink_of(keep_alive=False)
    sink.head(200, [], 0)
    sink.end()
    assert b"connection: close\r\n" in written(lane)
    assert lane.transport.closed


def test_a_refusal_before_the_body_came_lingers_and_closes() -> None:
    sink, lane, story = sink_of(whole=False)
    sink.head(413, [], 0)
    sink.end()
    assert b"connection: close\r\n" in written(lane)
    assert (lane.told, lane.transport.closed) == (["linger"], False)
    sink.feed(b"more")
    sink.received()
    assert lane.transport.closed
    assert "feed" not in story.told


@pytest.mark.parametrize("old", [True, False])
def test_a_cut_never_looks_like_an_end(old: bool) -> None:
    sink, lane, _ = sink_of(old=old)
    sink.head(200, [], None)
    sink.body(b"half")
    sink.abort()
    assert lane.transport.closed
    assert (b"<reset on close>" in lane.transport.written) is old
    assert not written(lane).endswith(b"0\r\n\r\n")
    assert b"half" in written(lane)


def test_after_the_end_nothing_has_an_effect() -> None:
    sink, lane, story = sink_of()
    sink.head(200, [], 0)
    sink.end()
    before, told = written(lane), list(story.told)
    sink.end()
    sink.abort()
    sink.flush()
    sink.head(500, [], 0)
    sink.pause()
    sink.resume()
    sink.late()
    sink.gone()
    assert written(lane) == before
    assert story.told == told == ["begin", "complete"]


def test_a_client_that_leaves_cancels_its_story_once() -> None:
    sink, lane, story = sink_of()
    sink.head(200, [], None)
    sink.body(b"held back")
    sink.disconnected = True
    sink.message_event.set()
    sink.gone()
    assert story.told == ["begin", "complete", "cancel"]
    sink.body(b"late")
    sink.flush()
    sink.end()
    assert lane.transport.written == []


def test_uvicorns_event_means_nothing_while_the_client_is_there() -> None:
    sink, _, story = sink_of()
    sink.message_event.set()
    assert story.told == ["begin", "complete"]
    assert not sink.response_complete


@pytest.mark.parametrize(("old", "reset"), [(True, True), (False, False)])
def test_a_connection_that_ends_under_an_answer_without_an_end_is_reset(old: bool, reset: bool) -> None:
    sink, lane, _ = sink_of(old=old)
    sink.head(200, [], None)
    sink.cut()
    assert (b"<reset on close>" in lane.transport.written) is reset


def test_one_that_ends_after_it_is_not() -> None:
    sink, lane, _ = sink_of(old=True)
    sink.head(200, [], None)
    sink.end()
    sink.cut()
    assert b"<reset on close>" not in lane.transport.written
