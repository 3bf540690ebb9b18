"""Answers that wait at a gate each, until the story opens it."""

import asyncio
from typing import Any

from tests.support.client import Response
from tests.support.worker import Answer, Seen, reply, stream


class Gates:
    """What a worker answers with. `asking` are the story's own requests."""

    def __init__(self) -> None:
        self.each: list[asyncio.Event] = []
        self.seen: list[Seen] = []
        self.asking: list[asyncio.Future[Response]] = []
        self._open = False

    def __call__(self, seen: Seen) -> Answer:
        self.seen.append(seen)
        if self._open:
            return reply()
        self.each.append(asyncio.Event())
        return stream(self.each[-1], b"data: [DONE]\n\n")

    def open(self) -> None:
        """All that waits goes on, and so does all that comes."""
        self._open = True
        for gate in self.each:
            gate.set()

    def shut(self) -> None:
        self._open = False

    async def all(self, status: int) -> list[Response]:
        """Open, and hear every answer."""
        self.open()
        answers: list[Any] = await asyncio.gather(*self.asking)
        assert [answer.status for answer in answers] == [status] * len(answers)
        self.asking = []
        return answers
