"""A request's headers in whatever frames, and how little is kept of them."""

import pytest

from router.rpc import frames
from router.rpc.frames import END_HEADERS, END_STREAM, Broken
from router.rpc.heads import MOST_FRAMES, MOST_KNOWN, MOST_REMEMBERED, Heads

PATH = frames.literal(b":path", b"/a")
STATELESS = b"\x20"  # the peer's table is of no size from here on


def read(heads: Heads, block: bytes, number: int = 1) -> str:
    assert heads.begin(END_HEADERS, number, block)
    return heads.path()


def test_they_may_come_in_several_frames() -> None:
    heads = Heads()
    assert not heads.begin(END_STREAM, 1, PATH[:3])
    assert heads.open
    assert not heads.go_on(0, 1, PATH[3:5])
    assert heads.go_on(END_HEADERS, 1, PATH[5:])
    assert (heads.open, heads.ends, heads.path()) == (False, True, "/a")


def test_equal_ones_are_read_once_and_only_so_many_are_kept() -> None:
    heads = Heads()
    read(heads, STATELESS + PATH)
    for at in range(2 * MOST_KNOWN):
        assert read(heads, PATH + frames.literal(b"a", b"%d" % at)) == "/a"
    assert len(heads._known) == MOST_KNOWN


def test_a_large_one_is_not_kept() -> None:
    heads = Heads()
    read(heads, STATELESS + PATH)
    large = PATH + b"".join(frames.literal(b"a", b"x" * 120) for _ in range(400))
    assert len(large) > MOST_REMEMBERED
    assert read(heads, large) == "/a"
    assert all(len(each) <= MOST_REMEMBERED for each in heads._known)


def test_they_do_not_come_in_ever_more_frames() -> None:
    heads = Heads()
    heads.begin(0, 1, b"")
    for _ in range(MOST_FRAMES - 1):
        heads.go_on(0, 1, b"")
    with pytest.raises(Broken) as wrong:
        heads.go_on(0, 1, b"")
    assert wrong.value.code == frames.ENHANCE_YOUR_CALM
