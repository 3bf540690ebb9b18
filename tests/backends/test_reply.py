"""The plain answer on a transport that writes down what it gets."""

from typing import Any

import pytest

from backends.http import Request
from backends.reply import Reply


class Transport:
    def __init__(self) -> None:
        self.data = b""
        self.ended = ""

    def write(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def get_extra_info(self, _: str) -> Any:
        return self

    def setsockopt(self, *_: Any) -> None: ...


def reply_to(method: str = "POST", version: str = "1.1", *, keep: bool = True) -> tuple[Reply, Transport, list[bool]]:
    transport, told = Transport(), list[bool]()
    reply = Reply(transport, Request(method, "/", version, (), b"", keep), told.append)  # type: ignore[arg-type]
    return reply, transport, told


def test_a_whole_answer_has_its_length_and_keeps_the_connection() -> None:
    reply, transport, told = reply_to()
    reply.whole(200, [("a", "b")], b"xyz")
    assert transport.data == b"HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 3\r\n\r\nxyz"
    assert transport.ended == ""
    assert told == [True]


def test_a_stream_is_chunked_event_by_event() -> None:
    reply, transport, _ = reply_to()
    reply.head(200, [])
    reply.send([b"one", b"three"])
    reply.end()
    assert transport.data.endswith(b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n5\r\nthree\r\n0\r\n\r\n")


def test_a_stream_to_an_old_client_ends_with_the_connection() -> None:
    reply, transport, _ = reply_to(version="1.0")
    reply.head(200, [])
    reply.send([b"one"])
    reply.end()
    assert transport.data == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\none"
    assert transport.ended == "closed"


def test_an_old_client_that_asked_keeps_its_connection_where_the_length_is_known() -> None:
    reply, transport, _ = reply_to(version="1.0")
    reply.whole(200, [], b"x")
    assert b"connection: keep-alive" in transport.data
    assert transport.ended == ""


def test_head_gets_the_headers_of_the_body_and_no_body() -> None:
    reply, transport, _ = reply_to("HEAD")
    reply.whole(200, [], b"xyz")
    assert transport.data == b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"
    reply, transport, _ = reply_to("HEAD")
    reply.head(200, [])
    reply.send([b"one"])
    reply.end()
    assert transport.data.endswith(b"chunked\r\n\r\n")


@pytest.mark.parametrize(("how", "ended"), [("cut", "closed"), ("reset", "aborted"), ("gone", "")])
def test_after_a_break_nothing_is_written_and_watchers_hear_it_once(how: str, ended: str) -> None:
    reply, transport, told = reply_to()
    others: list[bool] = []
    reply.when_over(others.append)
    reply.head(200, [])
    getattr(reply, how)()
    before = transport.data
    reply.send([b"x"])
    reply.end()
    reply.raw(b"x")
    reply.head(200, [])
    reply.whole(200, [], b"")
    reply.cut()
    reply.reset()
    assert transport.data == before
    assert transport.ended == ended
    assert told == others == [False]
    assert "over" in repr(reply)
