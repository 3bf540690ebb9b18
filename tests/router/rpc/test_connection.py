"""What all calls of a peer share, and how a peer that breaks the protocol is let go."""

import pytest

from router.rpc import frames
from router.rpc.connection import MOST_STREAMS
from router.rpc.frames import CONTINUATION, DATA, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS
from router.rpc.stream import Stream
from tests.support.peers import PATH, Peer


def test_it_greets_and_takes_the_peer_s_greeting_in_any_pieces() -> None:
    peer = Peer(greet=False)
    assert [kind for kind, *_ in peer.frames()] == [SETTINGS, frames.WINDOW_UPDATE]
    for byte in PREFACE + frames.settings({frames.MAX_FRAME: 20_000}):
        peer.send(bytes((byte,)))
    assert peer.frames() == [(SETTINGS, frames.ACK, 0, b"")]
    assert peer.connection.most_frame == 20_000


def test_a_call_is_opened_by_its_path_and_its_equal_headers_are_read_once() -> None:
    peer = Peer()
    peer.send(peer.head(1), peer.head(3), peer.head(5))
    assert [call.path for call in peer.calls] == [PATH] * 3
    assert peer.head(7)[9:] == peer.head(9)[9:]


def test_headers_that_a_table_remembers_are_read_too() -> None:
    peer = Peer(greet=False)
    peer.send(PREFACE, frames.settings({}), peer.head(1), peer.head(3))
    assert [call.path for call in peer.calls] == [PATH] * 2
    assert peer.connection._heads._known == {}


def test_headers_may_come_in_several_frames_padded_and_with_a_priority() -> None:
    peer = Peer()
    block = peer.head(1)[9:]
    peer.send(
        frames.frame(HEADERS, frames.PADDED | frames.PRIORITISED, 1, b"\x02\x00\x00\x00\x00\x10" + block[:7] + b"\0\0")
    )
    peer.send(frames.frame(CONTINUATION, 0, 1, block[7:20]), frames.frame(CONTINUATION, 4, 1, block[20:]))
    assert [call.path for call in peer.calls] == [PATH]


def test_no_such_method_is_said_so() -> None:
    peer = Peer()
    peer.send(peer.head(1, "/other", end=True))
    assert peer.ended_with()["grpc-status"] == "12"


def test_a_ping_is_answered_and_an_answer_is_not() -> None:
    peer = Peer()
    peer.send(frames.frame(PING, 0, 0, b"12345678"), frames.frame(PING, frames.ACK, 0, b"12345678"))
    assert peer.frames() == [(PING, frames.ACK, 0, b"12345678")]


def test_a_reset_ends_one_call_and_a_lost_connection_all() -> None:
    peer = Peer()
    one, two, three = peer.call(1), peer.call(3), peer.call(5)
    peer.send(frames.reset(3, frames.CANCEL), frames.reset(3, frames.CANCEL))
    assert (one.told, two.told, three.told) == ([], ["over"], [])
    peer.connection.connection_lost(None)
    assert (one.told, two.told, three.told) == (["over"], ["over"], ["over"])
    assert peer.there == set()


def test_trailers_of_the_peer_end_its_side() -> None:
    peer = Peer()
    call = peer.call()
    peer.send(peer.head(1, end=True))
    assert call.told == ["half closed"]


def test_it_leaves_when_the_last_call_is_over() -> None:
    peer = Peer()
    call = peer.call()
    peer.connection.leave()
    assert [kind for kind, *_ in peer.frames()] == [GOAWAY]
    assert not peer.wire.closed
    peer.send(peer.head(3))
    assert len(peer.calls) == 1
    call.stream.end()
    assert peer.wire.closed
    idle = Peer()
    idle.connection.leave()
    assert idle.wire.closed


def test_what_comes_of_one_read_goes_out_in_one_write() -> None:
    peer = Peer()
    writes = []
    peer.wire.write = writes.append  # type: ignore[method-assign,assignment]
    peer.send(peer.head(1, "/other"), peer.head(3, "/other"), frames.frame(PING, 0, 0, b"12345678"))
    assert len(writes) == 1


def test_what_is_unknown_is_ignored() -> None:
    peer = Peer()
    peer.send(frames.frame(0xBE, 0, 1, b"?"), frames.frame(frames.PRIORITY, 0, 1, b"\0" * 5), frames.goodbye(0, 0))
    assert not peer.wire.closed
    assert peer.frames() == []


BROKEN = {
    "another protocol": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "a frame too large": PREFACE + b"\xff\xff\xff" + bytes(6),
    "an even stream": PREFACE + frames.frame(HEADERS, 4, 2, b"\x82"),
    "headers that are none": PREFACE + frames.frame(HEADERS, 4, 1, b"\xff\xff\xff\xff\xff\xff\xff"),
    "another frame within headers": PREFACE + frames.frame(HEADERS, 0, 1, b"") + frames.frame(PING, 0, 0, b"12345678"),
    "headers that only go on": PREFACE + frames.frame(CONTINUATION, 4, 1, b""),
    "data of no stream": PREFACE + frames.frame(DATA, 0, 9, b"x"),
    "a client that pushes": PREFACE + frames.frame(frames.PUSH_PROMISE, 0, 1, b""),
    "a window without end": PREFACE + frames.update(0, frames.MOST_WINDOW),
    "a first window without end": PREFACE + frames.settings({frames.INITIAL_WINDOW: 2**31}),
    "headers without end": PREFACE
    + frames.frame(HEADERS, 0, 1, b"x" * 60_000)
    + frames.frame(CONTINUATION, 0, 1, b"x" * 9000),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_peer_that_breaks_the_protocol_is_told_and_let_go(data: bytes) -> None:
    peer = Peer(greet=False)
    peer.frames()
    peer.send(data)
    assert peer.wire.closed
    assert peer.frames()[-1][0] == GOAWAY


def test_a_fault_of_ours_ends_the_connection_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer()
    call = peer.call()

    def fails(_: bytes) -> None:
        raise ZeroDivisionError

    call.message = fails  # type: ignore[method-assign]
    peer.send(peer.data(1, b"x"))
    assert peer.wire.closed
    assert "a fault in the picker" in caplog.text


def test_a_stream_that_is_over_may_still_be_reset() -> None:
    peer = Peer()
    peer.call().stream.end()
    peer.frames()
    peer.send(frames.reset(1, frames.CANCEL), peer.data(1, b"late"))
    assert not peer.wire.closed
    assert RST_STREAM not in peer.kinds()


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[Stream]:
    """The streams that were looked at for what they may send, each time anew."""
    found: list[Stream] = []
    flush = Stream.flush

    def looked_at(stream: Stream) -> None:
        found.append(stream)
        flush(stream)

    monkeypatch.setattr(Stream, "flush", looked_at)
    return found


def waiting(peer: Peer, count: int) -> None:
    """So many streams with something to send."""
    for at in range(count):
        peer.call(2 * at + 1).stream.send(b"x" * 100)
    peer.frames()


def test_however_often_the_first_window_changes_its_last_value_counts_and_once(flushed: list[Stream]) -> None:
    peer = Peer()
    peer.send(frames.settings({frames.INITIAL_WINDOW: 0}))
    waiting(peer, 20)
    flushed.clear()
    values = b"".join(frames.settings({frames.INITIAL_WINDOW: at % 2})[9:] for at in range(5000))
    peer.send(frames.frame(SETTINGS, 0, 0, values), frames.frame(SETTINGS, 0, 0, values))
    assert len(flushed) == 20
    assert sum(len(payload) for kind, _, _, payload in peer.frames() if kind == DATA) == 20


def test_however_often_the_windows_widen_in_one_read_they_are_used_once(flushed: list[Stream]) -> None:
    peer = Peer()
    peer.send(frames.settings({frames.INITIAL_WINDOW: 0}))
    waiting(peer, 20)
    flushed.clear()
    peer.send(frames.update(0, 1) * 1000, frames.update(1, 1) * 30)
    assert len(flushed) == 1
    assert sum(len(payload) for kind, _, _, payload in peer.frames() if kind == DATA) == 30


def test_streams_that_wait_for_the_connection_s_window_are_looked_at_as_far_as_it_goes(flushed: list[Stream]) -> None:
    peer = Peer()
    peer.send(frames.settings({frames.INITIAL_WINDOW: 1 << 20}))
    peer.call(1).stream.send(b"x" * frames.DEFAULT_WINDOW)
    for at in range(1, 20):
        peer.call(2 * at + 1).stream.send(b"x" * 95)
    peer.frames()
    flushed.clear()
    peer.send(frames.update(0, 1) * 105)
    assert len(flushed) == 2
    assert [(number, len(payload)) for kind, _, number, payload in peer.frames() if kind == DATA] == [(1, 5), (3, 100)]


def test_a_stream_too_many_is_refused_and_the_others_go_on() -> None:
    peer = Peer()
    peer.send(*(peer.head(2 * at + 1) for at in range(MOST_STREAMS + 1)))
    assert len(peer.calls) == MOST_STREAMS
    [refusal] = peer.frames()
    assert refusal == (RST_STREAM, 0, 2 * MOST_STREAMS + 1, frames.reset(0, frames.REFUSED_STREAM)[9:])
    peer.calls[0].stream.end()
    peer.send(peer.head(2 * MOST_STREAMS + 3))
    assert len(peer.calls) == MOST_STREAMS + 1


def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    peer = Peer()
    peer.connection.pause_writing()
    assert not peer.wire.reading
    peer.connection.resume_writing()
    assert peer.wire.reading
    peer.wire.close()
    peer.connection.pause_writing()
    assert peer.wire.reading


def test_peers_that_break_the_protocol_leave_one_line(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer()
    for _ in range(5):
        peer.send(frames.frame(DATA, 0, 9, b"x"))
    assert len(caplog.messages) == 1
    assert not caplog.records[0].exc_info
