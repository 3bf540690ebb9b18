"""A line between two processes: order, questions and answers, and what happens when one end hangs or goes."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.signals.line import MOST_FRAME, Line


class End:
    """One end that writes down what it is told, and answers in its own way."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bytes]] = []
        self.held: asyncio.Event | None = None
        self.line = Line(self._hear, self._answer)

    def _hear(self, kind: str, content: bytes) -> None:
        self.told.append((kind, content))
        if kind == "trouble":
            raise RuntimeError("it cannot be heard")

    async def _answer(self, kind: str, content: bytes) -> bytes:
        self.told.append((f"{kind}?", content))
        if self.held is not None:
            await self.held.wait()
        if kind == "trouble":
            raise RuntimeError("it cannot be answered")
        return content[::-1]


Ends = tuple[End, End]


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    one, other = End(), End()
    for end, side in zip((one, other), socket.socketpair(), strict=True):
        await end.line.open(side)
    yield one, other
    for end in (one, other):
        await end.line.close()


async def test_everything_arrives_in_its_order(ends: Ends) -> None:
    one, other = ends
    for number in range(200):
        one.line.tell("number", b"%d" % number)
    one.line.tell("large", b"x" * 3_000_000)
    assert await one.line.ask("last", b"abc", 5) == b"cba"
    assert [content for kind, content in other.told if kind == "number"] == [b"%d" % n for n in range(200)]
    assert [(kind, len(content)) for kind, content in other.told[-2:]] == [("large", 3_000_000), ("last?", 3)]
    assert one.line.pending == 0


async def test_both_may_ask_at_the_same_time(ends: Ends) -> None:
    one, other = ends
    asked = [end.line.ask("q", b"%d1" % at, 5) for at, end in enumerate((one, other, one, other))]
    assert await asyncio.gather(*asked) == [b"10", b"11", b"12", b"13"]


async def test_a_question_that_cannot_be_answered_is_an_error_and_the_line_lives_on(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = ends
    with pytest.raises(ConnectionError):
        await one.line.ask("trouble", b"", 5)
    one.line.tell("trouble")
    assert await one.line.ask("q", b"ab", 5) == b"ba"
    assert len(caplog.records) == 2
    assert ("trouble", b"") in other.told


async def test_one_that_hangs_is_known_until_it_answers(ends: Ends) -> None:
    one, other = ends
    other.held = asyncio.Event()
    with pytest.raises(TimeoutError):
        await one.line.ask("q", b"", 0.05)
    assert one.line.hangs
    other.held.set()
    await asyncio.sleep(0.05)
    assert not one.line.hangs
    assert await one.line.ask("q", b"ab", 5) == b"ba"


async def test_an_answer_that_comes_at_the_very_end_of_the_time_leaves_nothing_overdue(ends: Ends) -> None:
    one, other = ends
    other.held = asyncio.Event()
    asking = asyncio.create_task(one.line.ask("q", b"", 0.0))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(one.line._take, -1, "q", b"")  # its time is up, but it does not know it yet
    with pytest.raises(TimeoutError):
        await asking
    assert not one.line.hangs
    other.held.set()


async def test_who_asks_one_that_goes_is_told(ends: Ends) -> None:
    one, other = ends
    other.held = asyncio.Event()
    asking = asyncio.create_task(one.line.ask("q", b"", 5))
    await asyncio.sleep(0.01)
    await other.line.close()
    with pytest.raises(ConnectionError):
        await asking
    assert one.line.ended.is_set()
    with pytest.raises(ConnectionError):
        await one.line.ask("q", b"", 5)
    one.line.tell("nobody hears this")
    other.held.set()


async def test_what_was_said_before_the_end_is_heard_before_it(ends: Ends) -> None:
    one, other = ends
    one.line.tell("last words", b"x" * 500_000)
    await one.line.close()
    await other.line.ended.wait()
    assert [kind for kind, _ in other.told] == ["last words"]


async def test_an_end_that_is_never_read_does_not_hold_up_the_closing() -> None:
    end, (side, _unread) = End(), socket.socketpair()
    await end.line.open(side)
    end.line.tell("much", b"x" * 4_000_000)
    assert end.line.pending > 0
    await end.line.close(0.05)
    _unread.close()


@pytest.mark.parametrize(
    "sent", [struct.pack("<I", MOST_FRAME + 1), struct.pack("<I", 3) + b"abc", struct.pack("<I", 1) + b"\xc1"]
)
async def test_what_is_no_message_ends_the_line(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    end, (side, other) = End(), socket.socketpair()
    await end.line.open(side)
    other.sendall(sent)
    await asyncio.wait_for(end.line.ended.wait(), 5)
    other.close()
    assert "no message" in caplog.text


@given(frames=st.lists(st.binary(max_size=40), max_size=8), cuts=st.lists(st.integers(1, 60), max_size=20))
def test_however_the_bytes_are_cut_the_same_is_heard(frames: list[bytes], cuts: list[int]) -> None:
    end = End()
    sent = b""
    for content in frames:
        frame = msgspec.msgpack.encode((0, "k", content))
        sent += struct.pack("<I", len(frame)) + frame
    with suppress(StopIteration):
        sizes = iter(cuts)
        while sent:
            size = next(sizes)
            end.line.data_received(sent[:size])
            sent = sent[size:]
    end.line.data_received(sent)
    assert [content for _, content in end.told] == frames
