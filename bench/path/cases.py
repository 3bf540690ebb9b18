"""What is asked of every proxy."""

from __future__ import annotations

from dataclasses import dataclass

KB = 1024
EVENTS = 64  # of a stream, beside its [DONE]
PACE_US = 10_000  # between two events: an engine's step with a batch


@dataclass(frozen=True)
class Case:
    """`size`: bytes of a body. `times`: how many times as long as the others it is measured."""

    name: str
    title: str
    size: int
    connections: int
    stream: bool = False
    times: int = 1

    @property
    def unit(self) -> str:
        return "event" if self.stream else "request"

    @property
    def events(self) -> int:
        """Of one answer, with the last one, which says [DONE]."""
        return EVENTS + 1 if self.stream else 0


CASES = (
    Case("json-2k", "JSON 2 KB", 2 * KB, 64),
    Case("json-32k", "JSON 32 KB", 32 * KB, 64),
    Case("json-256k", "JSON 256 KB", 256 * KB, 64),
    Case("sse", "paced SSE", 2 * KB, 64, stream=True, times=2),
    Case("one", "one connection", 2 * KB, 1),
    Case("c512", "512 connections", 2 * KB, 512),
)
BY_NAME = {case.name: case for case in CASES}
