"""One prompt of a trace, as a worker's cache and a router see it, and one request that sends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from router.types import Fingerprint

BLOCK = 512  # tokens of a block of the block traces
ROUTER_KIND = (None, False)  # what the length of a token is learnt for: one model, prompts of text


class Words(Protocol):
    """A prompt's text, or what stands for it.

    length: of the canonical prompt, in bytes
    """

    @property
    def length(self) -> int: ...
    def __len__(self) -> int:
        """Bytes that slices can be taken of; 0 where there is no text."""

    def __getitem__(self, span: slice, /) -> bytes: ...
    def fingerprint(self) -> Fingerprint: ...
    def head(self) -> bytes:
        """Its beginning, for policies that hash text themselves."""


class Item:
    """What is the same in every run: made once for each prompt, its fingerprint when somebody first asks for it.

    names: its cache entries in order, each naming the whole prefix that it ends; ends: tokens up to the end of each
    tokens, output: as the worker counts them
    """

    __slots__ = ("_prefix", "ends", "names", "output", "tokens", "words")

    def __init__(self, names: Sequence[int], ends: Sequence[int], tokens: int, output: int, words: Words) -> None:
        self.names = names
        self.ends = ends
        self.tokens = tokens
        self.output = output
        self.words = words
        self._prefix: Fingerprint | None = None

    @property
    def prefix(self) -> Fingerprint:
        if self._prefix is None:
            self._prefix = self.words.fingerprint()
        return self._prefix


class Request:
    """One request of one run.

    due: when the trace sends it; at: when it was sent, later where its session's turn before was late
    opens: it waits for no other; following: the session's next turn, which waits for this one's end
    worker: the id of the worker that has it; hit: tokens found in that worker's cache
    estimate: seconds of prefill expected when it was queued, for the reference
    ticket: whatever its router keeps of it
    """

    __slots__ = ("at", "done", "due", "estimate", "first", "following", "hit", "item", "opens", "reason", "router",
                 "ticket", "worker")  # fmt: skip

    def __init__(self, item: Item, due: float) -> None:
        self.item = item
        self.due = due
        self.at: float | None = None
        self.opens = True
        self.following: Request | None = None
        self.router = 0
        self.worker: str | None = None
        self.reason = ""
        self.hit = 0
        self.estimate = 0.0
        self.first = -1.0
        self.done = -1.0
        self.ticket: Any = None

    @property
    def ttft(self) -> float:
        """Seconds to the first token, once it came."""
        return self.first - (self.due if self.at is None else self.at)
