"""What is asked of a policy and what it answers, and what a worker says it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from router.types import Fingerprint, Key


class Ask(msgspec.Struct):
    """What a policy may know of a request. Its texts are let go once an answer has begun.

    held: worker id -> bytes of this prompt's prefix expected in its cache
    ages: worker id -> tokens computed there since it was sent this prefix last, whether it still has room or not
    trust: share of the prompt that its home may hold although nobody is known to, since other gateways send there too
    kind: what the length of a token is learnt for
    hashes: what to remember of it, shallowest first: its rungs, and the steps of two gaps (`core/steps.py`)
    lease: the latest attempt's, once there is one
    text: the canonical prompt, for policies with a key of their own; seed: what its hashes begin with
    native: the request is not one of OpenAI's, body: its raw bytes
    length: the canonical prompt's, in bytes
    turn: counts requests, for policies that go in turns
    """

    prefix: Fingerprint
    key: Key
    held: Mapping[str, int]
    seed: int
    text: bytes = b""
    session: str | None = None
    native: bool = False
    body: bytes = b""
    turn: int = 0
    ages: Mapping[str, float] = {}
    trust: float = 0.0
    kind: tuple[str | None, bool] = (None, False)
    length: int = 0
    hashes: list[int] = []
    lease: Any = None


class Ranked(msgspec.Struct, frozen=True, gc=False):
    """One step of a policy's order. `cost` is in prefill tokens, lower is better; `expected` in cached tokens."""

    worker: str
    reason: str
    expected: float
    cost: float


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What a worker said it did: tokens, None where it did not say."""

    prompt: int | None
    output: int | None
    cached: int | None
