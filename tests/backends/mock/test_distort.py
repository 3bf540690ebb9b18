"""Events in odd but legal form."""

from hypothesis import given
from hypothesis import strategies as st

from backends.mock.distort import NOISE, distortion, is_last, pieces
from backends.mock.faults import Effects

OPENAI, ANTHROPIC = b'data: {"a":"data: x"}\n\n', b'event: message_stop\ndata: {"a":1}\n\n'


def distorted(event: bytes, **effects: bool) -> bytes:
    distort = distortion(Effects(**effects))  # type: ignore[arg-type]
    assert distort is not None
    return distort(event)


def test_nothing_asked_is_nothing_done() -> None:
    assert distortion(Effects(gzip=True)) is None


def test_only_the_space_of_the_field_is_dropped() -> None:
    assert distorted(OPENAI, no_space=True) == b'data:{"a":"data: x"}\n\n'
    assert distorted(ANTHROPIC, no_space=True) == b'event: message_stop\ndata:{"a":1}\n\n'


def test_noise_comes_before_the_event_and_all_lines_can_end_with_crlf() -> None:
    assert distorted(OPENAI, noise=True) == NOISE + OPENAI
    assert distorted(OPENAI, noise=True, crlf=True) == (NOISE + OPENAI).replace(b"\n", b"\r\n")


@given(st.binary(), st.integers(1, 9))
def test_pieces_lose_nothing(data: bytes, size: int) -> None:
    found = list(pieces(data, size))
    assert b"".join(found) == data
    assert all(0 < len(piece) <= size for piece in found)


def test_the_last_event_is_known_in_both_forms() -> None:
    assert is_last(b"data: [DONE]\n\n")
    assert is_last(ANTHROPIC)
    assert not is_last(OPENAI)
