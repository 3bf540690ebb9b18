"""Frames as RFC 9113 draws them."""

import pytest

from router.rpc import frames
from router.rpc.frames import Broken


def test_a_frame_begins_with_its_length_type_flags_and_stream() -> None:
    made = frames.frame(frames.DATA, frames.END_STREAM, 5, b"x" * 70_000)
    assert made[:9] == (70_000).to_bytes(3, "big") + bytes((0, 1)) + (5).to_bytes(4, "big")
    assert frames.head_of(made, 0) == (70_000, frames.DATA, frames.END_STREAM, 5)


def test_the_reserved_bit_is_nobody_s() -> None:
    assert frames.head_of(b"\x00\x00\x00\x00\x00\x80\x00\x00\x07", 0)[3] == 7
    assert frames.word(b"\x80\x00\x00\x07") == 7


def test_settings_are_read_as_they_are_written() -> None:
    made = frames.settings({frames.MAX_FRAME: 65_536, frames.HEADER_TABLE_SIZE: 0})
    assert list(frames.read_settings(made[9:])) == [(5, 65_536), (1, 0)]
    with pytest.raises(Broken):
        frames.read_settings(b"12345")


def test_padding_is_taken_off_and_more_than_there_is_refused() -> None:
    assert frames.unpadded(b"\x02data..", frames.PADDED) == b"data"
    assert frames.unpadded(b"data", 0) == b"data"
    for wrong in (b"", b"\x05data"):
        with pytest.raises(Broken):
            frames.unpadded(wrong, frames.PADDED)


def test_an_increment_is_four_bytes() -> None:
    with pytest.raises(Broken):
        frames.word(b"123")


def test_a_message_has_five_bytes_before_it() -> None:
    made = frames.message(b"hello")
    assert made == b"\x00\x00\x00\x00\x05hello"
    assert frames.prefix_of(made) == (0, 5)


def test_trailers_and_headers_are_what_a_decoder_reads() -> None:
    from hpack import Decoder

    assert dict(Decoder().decode(frames.RESPONSE)) == {":status": "200", "content-type": "application/grpc"}
    assert dict(Decoder().decode(frames.trailers(0))) == {"grpc-status": "0"}
    assert dict(Decoder().decode(frames.trailers(13, "why"))) == {"grpc-status": "13", "grpc-message": "why"}
