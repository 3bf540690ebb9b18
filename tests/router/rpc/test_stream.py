"""One call: messages in whatever frames they come in, and out within the peer's windows."""

import pytest

from router.rpc import frames
from router.rpc.frames import DATA, HEADERS, RST_STREAM, WINDOW_UPDATE
from router.rpc.stream import WINDOW
from tests.support.peers import Peer


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
