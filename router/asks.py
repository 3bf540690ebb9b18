"""What is asked of a policy and what it answers, what a worker says it did, and what a prompt is known by.

Plain classes, made and read several times a request: where the path of a request is compiled, theirs are the cheapest
fields there are. Whoever holds one may keep it: all fields but an `Ask`'s are final, which the type checker holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final


class Fingerprint:
    """`hashes[i]` names the prefix of `depths[i]` bytes; both are empty when there is nothing to hash.

    whole: the hash of a prompt too short for any rung, which decides its affinity instead
    tokens: the prompt's length in tokens, estimated at `bytes_a_token`
    """

    __slots__ = ("bytes_a_token", "depths", "hashes", "tokens", "whole")

    def __init__(
        self, depths: tuple[int, ...], hashes: list[int], whole: int, tokens: float, bytes_a_token: float = 4.0
    ) -> None:
        self.depths: Final = depths
        self.hashes: Final = hashes
        self.whole: Final = whole
        self.tokens: Final = tokens
        self.bytes_a_token: Final = bytes_a_token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fingerprint) and self._all() == other._all()

    def __repr__(self) -> str:
        return f"Fingerprint{self._all()}"

    def _all(self) -> tuple[object, ...]:
        return self.depths, self.hashes, self.whole, self.tokens, self.bytes_a_token


class Key:
    """`value` decides the ring order; `hot_depth` bytes of the prefix are hot (0: none)."""

    __slots__ = ("depth", "hot_depth", "value")

    def __init__(self, value: int, depth: int, hot_depth: int) -> None:
        self.value: Final = value
        self.depth: Final = depth
        self.hot_depth: Final = hot_depth

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._all() == other._all()

    def __repr__(self) -> str:
        return f"Key{self._all()}"

    def _all(self) -> tuple[int, int, int]:
        return self.value, self.depth, self.hot_depth


class Ask:
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

    __slots__ = ("ages", "body", "hashes", "held", "key", "kind", "lease", "length", "native", "prefix", "seed",
                 "session", "text", "trust", "turn")  # fmt: skip

    def __init__(
        self,
        prefix: Fingerprint,
        key: Key,
        held: Mapping[str, int],
        seed: int,
        text: bytes = b"",
        session: str | None = None,
        native: bool = False,
        body: bytes = b"",
        turn: int = 0,
        ages: Mapping[str, float] | None = None,
        trust: float = 0.0,
        hashes: list[int] | None = None,
    ) -> None:
        self.prefix = prefix
        self.key = key
        self.held = held
        self.seed = seed
        self.text = text
        self.session = session
        self.native = native
        self.body = body
        self.turn = turn
        self.ages: Mapping[str, float] = {} if ages is None else ages
        self.trust = trust
        self.hashes: list[int] = [] if hashes is None else hashes
        self.kind: tuple[str | None, bool] = (None, False)
        self.length = 0
        self.lease: Any = None


class Ranked:
    """One step of a policy's order. `cost` is in prefill tokens, lower is better; `expected` in cached tokens."""

    __slots__ = ("cost", "expected", "reason", "worker")

    def __init__(self, worker: str, reason: str, expected: float, cost: float) -> None:
        self.worker: Final = worker
        self.reason: Final = reason
        self.expected: Final = expected
        self.cost: Final = cost

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranked) and self._all() == other._all()

    def __repr__(self) -> str:
        return f"Ranked{self._all()}"

    def _all(self) -> tuple[str, str, float, float]:
        return self.worker, self.reason, self.expected, self.cost


class Usage:
    """What a worker said it did: tokens, None where it did not say."""

    __slots__ = ("cached", "output", "prompt")

    def __init__(self, prompt: int | None, output: int | None, cached: int | None) -> None:
        self.prompt: Final = prompt
        self.output: Final = output
        self.cached: Final = cached

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usage) and self._all() == other._all()

    def __repr__(self) -> str:
        return f"Usage{self._all()}"

    def _all(self) -> tuple[int | None, int | None, int | None]:
        return self.prompt, self.output, self.cached
