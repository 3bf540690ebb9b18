"""Where the processes meet: the parent's side of their lines. It changes nothing itself and reads no prompt.

Changes are made in one order, in every process, and kept for those that are started later. The numbers of a process are
those it sent last; what a scrape has shown was sent, so the sums never fall when a process dies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from msgspec import structs

from router.observe.snapshot import Snapshot, decode
from router.observe.snapshot import encode as encode_counts
from router.processes.messages import (
    BEGIN,
    CHANGE,
    COUNT,
    COUNTED,
    DECISIONS,
    DRAINED,
    LISTENING,
    PROCESSES,
    REFUSED,
    RELOAD,
    SETTINGS,
    WHOLE,
    Change,
    ProcessRow,
    decode_change,
    encode,
    process_row,
)
from router.reload import Outcome
from router.signals.line import Line
from router.signals.siblings import NEWS, pass_on

log = logging.getLogger("router")

CHANGE_SECONDS, VIEW_SECONDS = 1.0, 0.5  # that one process may take before the others' answers must do
UNSAID = encode({})  # by a process that did not answer


class Member:
    """One process: its line, and the last it said of itself. Of two with one index, of which one is leaving, each has a
    slot of its own."""

    def __init__(self, index: int, hub: Hub, slot: int | None = None) -> None:
        self.index = index
        self.slot = index if slot is None else slot
        self.pid = 0
        self.leaving = False
        self.serves = False  # it has heard every change so far, and may take requests from now on
        self.began = self.heard_at = hub.clock()
        self.counted = Snapshot()
        self.listens = asyncio.Event()
        self.line = Line(lambda kind, content: hub.told(self, kind, content),
                         lambda kind, content: hub.answer(self, kind, content))  # fmt: skip


class Hub:
    """`dropped`: batches of news that a process was too slow to take. `reload` is what a process may ask for."""

    def __init__(self, clock: Callable[[], float], reload: Callable[[str], Awaitable[Outcome]] | None = None) -> None:
        self.clock, self.reload = clock, reload
        self.refused = False  # the last reload was
        self.members: dict[int, Member] = {}
        self.dropped = 0
        self._gone = Snapshot()
        self._changes: list[Change] = []

    def join(self, member: Member) -> None:
        """A process was started: it hears all changes made so far, then those to come."""
        for change in self._changes:
            member.line.tell(CHANGE, encode(change))
        if self.refused:
            member.line.tell(REFUSED, b"1")
        self.members[member.slot] = member

    def leave(self, member: Member) -> None:
        """It has ended, and its line has said all it had to say."""
        if self.members.pop(member.slot, None) is not None:
            self._gone.add_sums(member.counted)

    # What a process tells and asks.

    def told(self, member: Member, kind: str, content: bytes) -> None:
        member.heard_at = self.clock()
        if kind == NEWS:
            for other in self.members.values():
                if other is not member and not pass_on(other.line, content):
                    self.dropped += 1
        elif kind == COUNTED:
            member.counted = decode(content)
        elif kind == LISTENING:
            member.listens.set()

    async def answer(self, member: Member, kind: str, content: bytes) -> bytes:
        if kind == BEGIN:
            member.serves = True
        elif kind == CHANGE:
            await self._change(decode_change(content), content)
        elif kind == WHOLE:
            await self._ask_all(COUNT, VIEW_SECONDS)
            return encode_counts(self.whole())
        elif kind == DECISIONS:
            return encode(await self._ask_all(DECISIONS, VIEW_SECONDS))
        elif kind == DRAINED:
            return encode(await self._drained())
        elif kind == PROCESSES:
            await self._ask_all(COUNT, VIEW_SECONDS)
            return encode(self._rows())
        elif kind == RELOAD and self.reload is not None:
            return encode(await self.reload("POST /admin/reload"))
        return b""

    def mark(self, refused: bool) -> None:
        """The last reload was refused, or not."""
        self.refused = refused
        for member in self.members.values():
            member.line.tell(REFUSED, b"1" if refused else b"")

    async def hand_out(self, content: bytes) -> list[Member]:
        """New settings for all. Those that could not take them; one that hangs will when it wakes."""
        there = [member for member in self.members.values() if member.listens.is_set()]
        for member in self.members.values():
            if member not in there:
                member.line.tell(SETTINGS, content)
        asked = [member.line.ask(SETTINGS, content, CHANGE_SECONDS) for member in there]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [each for each, said in zip(there, answers, strict=True) if isinstance(said, ConnectionAbortedError)]

    async def _change(self, change: Change, content: bytes) -> None:
        told_later = structs.replace(change, over_seconds=0.0)  # a hand-over is not begun anew in a successor
        self._changes = kept(self._changes, told_later)
        await self._ask_all(CHANGE, CHANGE_SECONDS, content)

    async def _drained(self) -> list[bytes]:
        """What every process that may take requests has in flight where it drains; nothing is what a late one says."""
        members = [each for each in self.members.values() if each.serves]
        asked = [each.line.ask(DRAINED, b"", VIEW_SECONDS) for each in members if not each.line.hangs]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        said = [answer for answer in answers if isinstance(answer, bytes)]
        return said + [UNSAID] * (len(members) - len(said))

    def whole(self) -> Snapshot:
        """The numbers of all processes that are and were."""
        workers = set[str]().union(*(each.counted.workers() for each in self.members.values()))
        if workers:
            self._gone.keep(workers)  # a worker that left takes its series with it, here too
        whole = Snapshot()
        for each in (self._gone, *(member.counted for member in self.members.values())):
            whole.add(each)
        return whole

    def _rows(self) -> list[ProcessRow]:
        now = self.clock()
        return [
            process_row(
                each.index, each.pid, now - each.began, each.counted, answers=not each.line.hangs, leaving=each.leaving
            )
            for each in sorted(self.members.values(), key=lambda member: (member.index, not member.leaving))
        ]

    async def _ask_all(self, kind: str, seconds: float, content: bytes = b"") -> list[bytes]:
        """The answers that come in time. One that is only starting is told and not waited for; nor is one that hangs,
        unless it must hear of a change."""
        asked = []
        for each in list(self.members.values()):
            if each.listens.is_set() and (kind == CHANGE or not each.line.hangs):
                asked.append(each.line.ask(kind, content, seconds))
            elif kind == CHANGE:
                each.line.tell(kind, content)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [answer for answer in answers if isinstance(answer, bytes)]


def kept(changes: Iterable[Change], change: Change) -> list[Change]:
    """The changes that a process started later must hear: a removal makes all else about its worker void, and of two in
    a row that say the same kind of thing about a worker the last counts."""
    others = [each for each in changes if each.worker_id != change.worker_id]
    own = [each for each in changes if each.worker_id == change.worker_id]
    if change.kind == "remove":
        own = []
    elif own and (own[-1].kind == "add") == (change.kind == "add") and own[-1].kind != "remove":
        own.pop()
    return [*others, *own, change]
