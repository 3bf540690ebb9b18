"""Amazon SageMaker's prefix-aware routing, by its two documented knobs, to compare with.

Documented (SageMaker API reference: PrefixAwareRoutingConfig, ProductionVariantRoutingConfig and InvokeEndpoint's
PrefixAwareId; and AWS's announcement of prefix-aware routing, September 2026):

- The prefix is at most `PrefixLength`, 1024 to 65536: bytes of the request's raw body for native calls, so that other
  spacing or another temperature may part two requests; characters of the messages' text for OpenAI calls.
- Same prefix, same worker. When the fleet changes, only a small part of the prefixes moves.
- When that worker's requests in flight reach `ConcurrencyThreshold`, 1 to 1024, one with more capacity is taken.
- An id, `X-Amzn-SageMaker-Prefix-Aware-Id` or in OpenAI calls `prompt_cache_key`, counts as part of the prefix.
- Adapters: the choice is among the workers that serve it. Both knobs must be given; AWS's examples say 4096 and 10.

Our reading, where that is silent:

- A shorter prompt counts whole; one without any text (images alone) goes by load.
- Text is what the messages say: neither tools, tool calls and images nor roles. Where one text ends and the next begins
  counts too, but is no character. Other OpenAI and Anthropic calls: system, prompt or input.
- Either id counts in either kind of call, as do model, tenant and `cache_salt`; an id of any length is taken.
- The ring decides who is whose. More capacity is fewer requests in flight for a worker's weight; if nobody has fewer,
  the prefix stays where it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict, Field

from router.contracts import Ask, Candidate, PolicyTools, Ranked, Ring
from router.core.balance import by_requests, by_work
from router.core.candidates import by_name
from router.core.fingerprint import prefix_hash
from router.types import Reason

LEAST_LENGTH, MOST_LENGTH, MOST_CONCURRENCY = 1024, 65536, 1024
BORDER = b"\xff"  # begins every mark of the canonical prompt and is in no text
NO_TEXT = re.compile(
    rb"\xff[FMCN]\xfe[^\xfe]*\xfe"  # tools, media, calls and names, with what they hold
    rb"|\xffT[^\xfe]*\xfe"  # a turn's role
    rb"|\xff[IJ]\xfe|\xff[PS]"  # where token ids, a plain prompt or a further part begin
)


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    prefix_length: int = Field(
        4096, ge=LEAST_LENGTH, le=MOST_LENGTH, description="bytes (native calls) or characters that decide"
    )
    concurrency_threshold: int = Field(
        64, ge=1, le=MOST_CONCURRENCY, description="requests in flight at which a worker is full"
    )


class PrefixAware:
    def __init__(self, options: Options, ring: Ring) -> None:
        self.options = options
        self.ring = ring

    def order(self, ask: Ask, candidates: Sequence[Candidate], now: float) -> Iterator[Ranked]:
        length = self.options.prefix_length
        prefix = ask.body[:length] if ask.native else beginning(ask.text, length)
        by_id = by_name(candidates)
        name = self.ring.nearest(prefix_hash(prefix, ask.seed, len(prefix)), by_id) if prefix else None
        if name is None:
            yield from by_work(candidates, now)
            return
        home = by_id[name]
        kept = Ranked(name, Reason.HOME, 0.0, _in_flight(home) / home.weight)
        keeps = _in_flight(home) < self.options.concurrency_threshold
        if keeps:
            yield kept
        for other in by_requests(candidates, Reason.SPILL):
            if not keeps and other.cost >= kept.cost:
                keeps = True
                yield kept
            if other.worker != name:
                yield other


def beginning(canonical: bytes, characters: int) -> bytes:
    """The first characters of a canonical prompt's text, as UTF-8, with a `BORDER` between two texts."""
    taken: list[bytes] = []
    for text in _texts(canonical):
        if text.isascii():
            head = text[:characters]
            characters -= len(head)
        else:  # four bytes a character at most; escapes keep whatever is no valid UTF-8
            read = text[: characters * 4].decode("utf-8", "surrogateescape")[:characters]
            characters -= len(read)
            head = read.encode("utf-8", "surrogateescape")
        taken.append(head)
        if not characters:
            break
    return BORDER.join(taken)


def _texts(canonical: bytes) -> Iterator[bytes]:
    """The texts between the marks, none of them empty, read no further than asked for."""
    start = 0
    for mark in NO_TEXT.finditer(canonical):
        if mark.start() > start:
            yield canonical[start : mark.start()]
        start = mark.end()
    if start < len(canonical):
        yield canonical[start:]


def _in_flight(candidate: Candidate) -> int:
    """By all processes of this machine: the threshold is a worker's, not a process's."""
    return candidate.load.in_flight + candidate.load.elsewhere


def build(options: Options, tools: PolicyTools) -> PrefixAware:
    return PrefixAware(options, tools.ring)
