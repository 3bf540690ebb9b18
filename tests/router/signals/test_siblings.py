"""The channel between processes: best effort, never blocking."""

import asyncio
import socket

from router.clock import monotonic
from router.contracts import Channel
from router.core.holders import Holders
from router.core.mind import Mind
from router.policies import least_work
from router.signals.line import Line
from router.signals.sharing import Sharing
from router.signals.siblings import MOST_PENDING, NEWS, Siblings
from router.types import News
from tests.support.fleets import fleet_of, worker


async def nothing(kind: str, content: bytes) -> bytes:
    return b""


async def test_batches_go_both_ways() -> None:
    heard: list[tuple[int, bytes]] = []
    lines: list[Line] = []
    ends: list[Siblings] = []

    def told(at: int, kind: str, content: bytes) -> None:
        assert kind == NEWS
        ends[at].receive(content)

    for at, side in enumerate(socket.socketpair()):
        line = await Line(lambda kind, content, at=at: told(at, kind, content), nothing).open(side)
        lines.append(line)
        ends.append(Siblings(line, lambda batch, at=at: heard.append((at, batch))))
    channel: Channel = ends[0]
    channel.send(b"one")
    ends[1].send(b"two")
    await asyncio.sleep(0.05)
    assert sorted(heard) == [(0, b"two"), (1, b"one")]
    assert [(end.sent, end.received, end.dropped) for end in ends] == [(1, 1, 0)] * 2
    await ends[1].close()
    channel.send(b"three")
    await asyncio.sleep(0.05)
    assert len(heard) == 2
    for line in lines:
        await line.close()
    channel.send(b"to nobody")
    assert ends[0].dropped == 1


async def test_what_a_hanging_parent_does_not_take_is_dropped_and_counted() -> None:
    side, unread = socket.socketpair()
    line = await Line(lambda kind, content: None, nothing).open(side)
    siblings = Siblings(line, lambda batch: None)
    for _ in range(40):
        siblings.send(b"x" * 100_000)
    assert siblings.dropped > 0
    assert line.pending < MOST_PENDING + 200_000
    unread.close()
    await line.close()


async def test_news_of_one_mind_reach_the_other() -> None:
    fleets = [fleet_of([worker("a")]) for _ in range(2)]
    minds = [Mind(fleet, least_work.build(least_work.Options(), None), holders=Holders()) for fleet in fleets]  # type: ignore[arg-type]
    sharings = [Sharing(mind, monotonic) for mind in minds]
    ends: list[Siblings] = []
    lines: list[Line] = []
    for at, side in enumerate(socket.socketpair()):
        lines.append(await Line(lambda kind, content, at=at: ends[at].receive(content), nothing).open(side))
        ends.append(Siblings(lines[at], sharings[at].receive))
        sharings[at].join(ends[at])
    assert minds[0].outbox is not None
    minds[0].outbox.append(News("a", 100.0, 100.0, [1, 2, 3]))
    await asyncio.sleep(0.1)
    assert fleets[1].seats["a"].load.traffic == 100.0
    assert sharings[1].received == 1
    for sharing in sharings:
        await sharing.close()
    for line in lines:
        await line.close()
