"""One call: messages in whatever frames they come in, and out within the peer's windows."""

import pytest

from router.rpc import frames
from router.rpc.frames import DATA, HEADERS, RST_STREAM, WINDOW_UPDATE
from router.rpc.stream import WINDOW
from tests.support.peers import Noted, Peer


def test_messages_come_whole_whatever_frames_they_come_in() -> None:
    peer = Peer()
    call = peer.call()
    whole = frames.message(b"one") + frames.message(b"") + frames.message(b"three")
    for byte in whole:
        peer.send(frames.frame(DATA, 0, 1, bytes((byte,))))
    peer.send(frames.frame(DATA, 0, 1, whole), peer.data(1, b"last", end=True))
    assert call.told == [b"one", b"", b"three", b"one", b"", b"three", b"last", "half closed"]


def test_an_answer_has_a_head_messages_and_trailers() -> None:
    peer = Peer()
    call = peer.call()
    peer.send(peer.data(1, b"hello", end=True))
    call.stream.send(b"one")
    call.stream.send(b"two")
    call.stream.end()
    call.stream.end()
    call.stream.send(b"too late")
    got = peer.frames()
    assert [(kind, flags) for kind, flags, _, _ in got] == [(HEADERS, 4), (DATA, 0), (DATA, 0), (HEADERS, 5)]
    assert [payload for kind, _, _, payload in got if kind == DATA] == [frames.message(b"one"), frames.message(b"two")]
    assert call.told == [b"hello", "half closed", "over"]
    assert peer.connection.streams == {}


def test_an_answer_before_the_peer_s_end_also_resets_the_stream() -> None:
    peer = Peer()
    peer.call().stream.end(13, "why")
    got = peer.frames()
    assert [kind for kind, *_ in got] == [HEADERS, RST_STREAM]
    assert dict(peer.decoder.decode(got[0][3])) == {
        ":status": "200", "content-type": "application/grpc", "grpc-status": "13", "grpc-message": "why",
    }  # fmt: skip
    peer.send(peer.data(1, b"on its way"))
    assert not peer.wire.closed


def test_no_more_is_sent_than_the_windows_allow_and_the_rest_when_they_widen() -> None:
    peer = Peer()
    call = peer.call()
    body = bytes(range(256)) * 400
    call.stream.send(body)
    call.stream.end()
    first = peer.frames()
    sent = b"".join(payload for kind, _, _, payload in first if kind == DATA)
    assert len(sent) == frames.DEFAULT_WINDOW
    assert max(len(payload) for _, _, _, payload in first) <= frames.DEFAULT_FRAME
    assert call.told == []
    peer.send(frames.update(1, 100_000))
    assert peer.frames() == []
    peer.send(frames.update(0, 100_000))
    rest = peer.frames()
    sent += b"".join(payload for kind, _, _, payload in rest if kind == DATA)
    assert sent == frames.message(body)
    assert rest[-2][0] == HEADERS
    assert call.told == ["over"]


def test_a_larger_first_window_lets_waiting_bytes_go() -> None:
    peer = Peer()
    peer.send(frames.settings({frames.INITIAL_WINDOW: 10}), frames.update(0, 1000))
    peer.frames()
    call = peer.call()
    call.stream.send(b"x" * 100)
    assert sum(len(payload) for kind, _, _, payload in peer.frames() if kind == DATA) == 10
    peer.send(frames.settings({frames.INITIAL_WINDOW: 1000}))
    assert sum(len(payload) for kind, _, _, payload in peer.frames() if kind == DATA) == 95


def test_the_peer_is_given_room_as_its_bytes_are_read() -> None:
    peer = Peer(most_message=4 << 20)
    call = peer.call()
    message = frames.message(b"x" * (WINDOW * 2))
    for at in range(0, len(message), 50_000):
        peer.send(frames.frame(DATA, 0, 1, message[at : at + 50_000]))
    assert call.told == [b"x" * (WINDOW * 2)]
    given = sum(
        frames.word(payload) for kind, _, number, payload in peer.frames() if (kind, number) == (WINDOW_UPDATE, 1)
    )
    assert given >= WINDOW


@pytest.mark.parametrize(
    ("begin", "status"),
    [(b"\x01\x00\x00\x00\x05", "12"), (b"\x00\x7f\xff\xff\xff", "8")],
    ids=["compressed", "too large"],
)
def test_a_message_that_is_not_taken_ends_its_call_and_no_other(begin: bytes, status: str) -> None:
    peer = Peer()
    call, other = peer.call(1), peer.call(3)
    peer.send(frames.frame(DATA, 0, 1, begin))
    assert peer.ended_with()["grpc-status"] == status
    assert call.told == ["over"]
    peer.send(peer.data(3, b"hello"))
    assert other.told == [b"hello"]


def test_a_window_may_not_grow_without_end() -> None:
    peer = Peer()
    peer.call()
    peer.send(frames.update(1, frames.MOST_WINDOW))
    assert peer.wire.closed


def echoing(peer: Peer) -> Noted:
    call = peer.call()
    call.message = call.stream.send  # type: ignore[method-assign]
    return call


def test_a_peer_that_does_not_take_what_comes_back_is_given_no_more_room() -> None:
    peer = Peer()
    peer.send(frames.settings({frames.INITIAL_WINDOW: 0}))
    call = echoing(peer)
    piece = peer.data(1, b"x" * 50_000)
    for _ in range(WINDOW // 50_009):
        peer.send(piece)
    assert (WINDOW_UPDATE, 1) not in [(kind, number) for kind, _, number, _ in peer.frames()]
    waiting = sum(map(len, call.stream.backlog))
    assert WINDOW // 2 < waiting <= WINDOW
    peer.send(frames.settings({frames.INITIAL_WINDOW: WINDOW}), frames.update(0, WINDOW))
    got = peer.frames()
    assert sum(len(payload) for kind, _, _, payload in got if kind == DATA) == waiting
    [room] = [frames.word(payload) for kind, _, number, payload in got if (kind, number) == (WINDOW_UPDATE, 1)]
    assert room == waiting


def test_a_peer_that_sends_without_room_loses_its_stream_and_no_other() -> None:
    peer = Peer()
    peer.send(frames.settings({frames.INITIAL_WINDOW: 0}))
    call = echoing(peer)
    other = peer.call(3)
    peer.frames()
    for _ in range(WINDOW // 50_005 + 1):
        peer.send(peer.data(1, b"x" * 50_000))
    assert peer.frames()[-1] == (RST_STREAM, 0, 1, frames.reset(0, frames.FLOW_CONTROL_ERROR)[9:])
    assert call.told == ["over"]
    peer.send(peer.data(3, b"hello"))
    assert other.told == [b"hello"]


def test_what_comes_after_the_end_is_not_kept() -> None:
    peer = Peer()
    peer.send(frames.settings({frames.INITIAL_WINDOW: 0}))
    call = peer.call()
    call.stream.send(b"an answer")
    peer.send(frames.frame(DATA, 0, 1, b"\x01\0\0\0\x05hello"))
    stream = call.stream
    for _ in range(10):
        peer.send(frames.frame(DATA, 0, 1, b"x" * 60_000))
        assert not stream._buffer
    for _ in range(10):
        peer.send(frames.frame(DATA, 0, 1, b"x" * 60_000))
    assert call.told == ["over"]
    assert peer.connection.streams == {}


def test_data_after_the_peer_s_own_end_resets_its_stream() -> None:
    peer = Peer()
    call = peer.call()
    peer.send(peer.data(1, b"hello", end=True), peer.data(1, b"more"))
    assert peer.frames()[-1] == (RST_STREAM, 0, 1, frames.reset(0, frames.STREAM_CLOSED)[9:])
    assert call.told == [b"hello", "half closed", "over"]


def test_padding_is_room_too() -> None:
    peer = Peer()
    call = peer.call()
    padded = frames.frame(DATA, frames.PADDED, 1, b"\xff" + frames.message(b"x") + bytes(255))
    sent = 0
    for _ in range(2 * WINDOW // (len(padded) - 9)):
        peer.send(padded)
        sent += len(padded) - 9
    room = sum(
        frames.word(payload) for kind, _, number, payload in peer.frames() if (kind, number) == (WINDOW_UPDATE, 1)
    )
    assert sent - room <= WINDOW // 2 + len(padded)
    assert len(call.told) == 2 * WINDOW // (len(padded) - 9)


def test_a_message_goes_out_whole_however_little_the_peer_takes_at_once() -> None:
    peer = Peer()
    peer.send(frames.settings({frames.INITIAL_WINDOW: 0}))
    call = peer.call()
    for body in (b"one message", b"and another"):
        call.stream.send(body)
    call.stream.end()
    got = b""
    while not call.told:
        peer.send(frames.update(1, 3))
        got += b"".join(payload for kind, _, _, payload in peer.frames() if kind == DATA)
    assert got == frames.message(b"one message") + frames.message(b"and another")


def test_a_call_can_be_ended_though_the_peer_takes_nothing() -> None:
    peer = Peer()
    peer.send(frames.settings({frames.INITIAL_WINDOW: 0}))
    call = peer.call()
    call.stream.send(b"an answer")
    call.stream.end()
    assert call.told == []
    call.stream.abort()
    call.stream.abort()
    assert call.told == ["over"]
    assert [kind for kind, *_ in peer.frames()][-1] == RST_STREAM
